/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Accessors of the opaque if_t, through which drivers see an interface (ifnet(9)), and its
 * counters.
 *
 * Locking.  None: a field has one writer, the driver or the thread that configures the interface.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/counter.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>
#include <sys/socket.h>
#include <sys/sockio.h>
#include <sys/time.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_dl.h>
#include <net/if_var.h>
#include <net/if_private.h>

static MALLOC_DEFINE(M_IFDESCR, "ifdescr", "descriptions of network interfaces");

/* A field that is read and set, and nothing else. */
#define	IF_SET(name, type, arg, field)					\
int									\
if_set##name(if_t ifp, arg value)					\
{									\
	ifp->field = (type)value;					\
	return (0);							\
}
#define	IF_GET(name, type, self, field)					\
type									\
if_get##name(self ifp)							\
{									\
	return (ifp->field);						\
}
#define	IF_SETBITS(name, set, clear, field)				\
int									\
name(if_t ifp, int set, int clear)					\
{									\
	ifp->field = (ifp->field & ~clear) | set;			\
	return (0);							\
}
#define	IF_TOGGLE(name, field)						\
int									\
name(if_t ifp, int bits)						\
{									\
	ifp->field ^= bits;						\
	return (0);							\
}
#define	IF_SETFN(name, type, field)					\
void									\
name(if_t ifp, type fn)							\
{									\
	ifp->field = fn;						\
}

IF_SET(capabilities, int, int, if_capabilities)
IF_SET(capabilities2, int, int, if_capabilities2)
IF_SET(capenable, int, int, if_capenable)
IF_SET(capenable2, int, int, if_capenable2)
IF_SET(drvflags, int, int, if_drv_flags)
IF_SET(flags, int, int, if_flags)
IF_SET(hwassist, uint64_t, int, if_hwassist)
IF_SET(hwtsomax, u_int, u_int, if_hw_tsomax)
IF_SET(hwtsomaxsegcount, u_int, u_int, if_hw_tsomaxsegcount)
IF_SET(hwtsomaxsegsize, u_int, u_int, if_hw_tsomaxsegsize)
IF_SET(ifheaderlen, uint8_t, int, if_hdrlen)
IF_SET(mtu, uint32_t, int, if_mtu)
IF_SET(softc, void *, void *, if_softc)

IF_GET(alloctype, int, const if_t, if_alloctype)
IF_GET(addrlen, uint8_t, if_t, if_addrlen)
IF_GET(baudrate, uint64_t, const if_t, if_baudrate)
IF_GET(bpf, struct bpf_if *, if_t, if_bpf)
IF_GET(broadcastaddr, const uint8_t *, const if_t, if_broadcastaddr)
IF_GET(capabilities, int, const if_t, if_capabilities)
IF_GET(capabilities2, int, const if_t, if_capabilities2)
IF_GET(capenable, int, const if_t, if_capenable)
IF_GET(capenable2, int, const if_t, if_capenable2)
IF_GET(descr, const char *, if_t, if_description)
IF_GET(dname, const char *, const if_t, if_dname)
IF_GET(drvflags, int, const if_t, if_drv_flags)
IF_GET(dunit, int, const if_t, if_dunit)
IF_GET(fib, u_int, if_t, if_fib)
IF_GET(flags, int, const if_t, if_flags)
IF_GET(hwassist, int, const if_t, if_hwassist)
IF_GET(hwtsomax, u_int, const if_t, if_hw_tsomax)
IF_GET(hwtsomaxsegcount, u_int, const if_t, if_hw_tsomaxsegcount)
IF_GET(hwtsomaxsegsize, u_int, const if_t, if_hw_tsomaxsegsize)
IF_GET(idxgen, int, const if_t, if_idxgen)
IF_GET(ifaddr, struct ifaddr *, const if_t, if_addr)
IF_GET(index, int, const if_t, if_index)
IF_GET(inputfn, if_input_fn_t, if_t, if_input)
IF_GET(l2com, void *, if_t, if_l2com)
IF_GET(linkstate, int, if_t, if_link_state)
IF_GET(llsoftc, void *, if_t, if_llsoftc)
IF_GET(mtu, int, const if_t, if_mtu)
IF_GET(numadomain, int, if_t, if_numa_domain)
IF_GET(pcp, uint8_t, if_t, if_pcp)
IF_GET(softc, void *, if_t, if_softc)
IF_GET(startfn, if_start_fn_t, if_t, if_start)
IF_GET(transmitfn, if_transmit_fn_t, if_t, if_transmit)
IF_GET(type, int, const if_t, if_type)
IF_GET(vlantrunk, struct ifvlantrunk *, if_t, if_vlantrunk)
IF_GET(vnet, struct vnet *, const if_t, if_vnet)

IF_SETBITS(if_setcapabilitiesbit, set, clear, if_capabilities)
IF_SETBITS(if_setcapabilities2bit, set, clear, if_capabilities2)
IF_SETBITS(if_setcapenablebit, set, clear, if_capenable)
IF_SETBITS(if_setcapenable2bit, set, clear, if_capenable2)
IF_SETBITS(if_setdrvflagbits, set, clear, if_drv_flags)
IF_SETBITS(if_setflagbits, set, clear, if_flags)
IF_SETBITS(if_sethwassistbits, set, clear, if_hwassist)
IF_TOGGLE(if_togglecapenable, if_capenable)
IF_TOGGLE(if_togglecapenable2, if_capenable2)
IF_TOGGLE(if_togglehwassist, if_hwassist)

IF_SETFN(if_setbroadcastaddr, const uint8_t *, if_broadcastaddr)
IF_SETFN(if_setdebugnet_methods, struct debugnet_methods *, if_debugnet_methods)
IF_SETFN(if_setgetcounterfn, if_get_counter_t, if_get_counter)
IF_SETFN(if_setinitfn, if_init_fn_t, if_init)
IF_SETFN(if_setinputfn, if_input_fn_t, if_input)
IF_SETFN(if_setioctlfn, if_ioctl_fn_t, if_ioctl)
IF_SETFN(if_setllsoftc, void *, if_llsoftc)
IF_SETFN(if_setoutputfn, if_output_fn_t, if_output)
IF_SETFN(if_setqflushfn, if_qflush_fn_t, if_qflush)
IF_SETFN(if_setratelimitqueryfn, if_ratelimit_query_t *, if_ratelimit_query)
IF_SETFN(if_setreassignfn, if_reassign_fn_t, if_reassign)
IF_SETFN(if_setsndtagallocfn, if_snd_tag_alloc_t *, if_snd_tag_alloc)
IF_SETFN(if_setstartfn, if_start_fn_t, if_start)
IF_SETFN(if_settransmitfn, if_transmit_fn_t, if_transmit)
IF_SETFN(if_setdname, const char *, if_dname)

uint64_t
if_setbaudrate(if_t ifp, uint64_t baudrate)
{
	uint64_t old = ifp->if_baudrate;

	ifp->if_baudrate = baudrate;
	return (old);
}

int
if_setdev(if_t ifp __unused, void *dev __unused)
{
	return (0);
}

int
if_clearhwassist(if_t ifp)
{
	ifp->if_hwassist = 0;
	return (0);
}

const char *
if_name(if_t ifp)
{
	return (ifp->if_xname);
}

int
if_setname(if_t ifp, const char *name)
{
	if (strlcpy(ifp->if_xname, name, sizeof(ifp->if_xname)) >= sizeof(ifp->if_xname))
		return (ENAMETOOLONG);
	return (0);
}

void
if_setdescr(if_t ifp, char *descr)
{
	if_freedescr(ifp->if_description);
	ifp->if_description = descr;
}

char *
if_allocdescr(size_t size, int flags)
{
	return (malloc(size, M_IFDESCR, flags));
}

void
if_freedescr(char *descr)
{
	free(descr, M_IFDESCR);
}

void
if_setlastchange(if_t ifp)
{
	getmicrotime(&ifp->if_lastchange);
}

/* The protocols of this kernel have no limit of their own. */
int
if_getmtu_family(const if_t ifp, int family __unused)
{
	return (ifp->if_mtu);
}

char *
if_getlladdr(const if_t ifp)
{
	return (ifp->if_addr == NULL ? NULL : IF_LLADDR(ifp));
}

int
if_gethwaddr(const if_t ifp, struct ifreq *ifr)
{
	if (ifp->if_hw_addr == NULL)
		return (ENODEV);
	bcopy(ifp->if_hw_addr, ifr->ifr_addr.sa_data, ifp->if_addrlen);
	ifr->ifr_addr.sa_len = ifp->if_addrlen;
	return (0);
}

bool
if_altq_is_enabled(if_t ifp)
{
	return (ALTQ_IS_ENABLED(&ifp->if_snd));
}

int
if_sendq_empty(if_t ifp)
{
	return (IFQ_DRV_IS_EMPTY(&ifp->if_snd));
}

int
if_setsendqready(if_t ifp)
{
	IFQ_SET_READY(&ifp->if_snd);
	return (0);
}

int
if_setsendqlen(if_t ifp, int len)
{
	IFQ_SET_MAXLEN(&ifp->if_snd, len);
	ifp->if_snd.ifq_drv_maxlen = len;
	return (0);
}

int
if_sendq_prepend(if_t ifp, struct mbuf *m)
{
	IFQ_DRV_PREPEND(&ifp->if_snd, m);
	return (0);
}

struct mbuf *
if_dequeue(if_t ifp)
{
	struct mbuf *m;

	IFQ_DRV_DEQUEUE(&ifp->if_snd, m);
	return (m);
}

void
if_setrcvif(struct mbuf *m, if_t ifp)
{
	m->m_pkthdr.rcvif = ifp;
}

void
if_setvtag(struct mbuf *m, u_int16_t tag)
{
	m->m_pkthdr.ether_vtag = tag;
}

u_int16_t
if_getvtag(struct mbuf *m)
{
	return (m->m_pkthdr.ether_vtag);
}

int
if_vlantrunkinuse(if_t ifp)
{
	return (ifp->if_vlantrunk != NULL);
}

void *
if_getafdata(if_t ifp, int af)
{
	return (ifp->if_afdata[af]);
}

int
if_resolvemulti(if_t ifp, struct sockaddr **dst, struct sockaddr *src)
{
	return (ifp->if_resolvemulti == NULL ? EOPNOTSUPP : ifp->if_resolvemulti(ifp, dst, src));
}

void
if_input(if_t ifp, struct mbuf *m)
{
	ifp->if_input(ifp, m);
}

int
if_transmit(if_t ifp, struct mbuf *m)
{
	return (ifp->if_transmit(ifp, m));
}

void
if_init(if_t ifp, void *arg)
{
	ifp->if_init(arg);
}

int
if_ioctl(if_t ifp, u_long cmd, void *data)
{
	return (ifp->if_ioctl(ifp, cmd, data));
}

int
if_snd_tag_alloc(if_t ifp, union if_snd_tag_alloc_params *params, struct m_snd_tag **mstp)
{
	if (ifp->if_snd_tag_alloc == NULL)
		return (EOPNOTSUPP);
	return (ifp->if_snd_tag_alloc(ifp, params, mstp));
}

/* Make the limits the smaller of the interface's and the given ones; 0 is no limit. */
void
if_hw_tsomax_common(if_t ifp, struct ifnet_hw_tsomax *max)
{
#define	TIGHTEN(a, b)	((a) = (b) != 0 && ((a) == 0 || (b) < (a)) ? (b) : (a))
	TIGHTEN(max->tsomaxbytes, ifp->if_hw_tsomax);
	TIGHTEN(max->tsomaxsegcount, ifp->if_hw_tsomaxsegcount);
	TIGHTEN(max->tsomaxsegsize, ifp->if_hw_tsomaxsegsize);
#undef TIGHTEN
}

int
if_hw_tsomax_update(if_t ifp, struct ifnet_hw_tsomax *max)
{
	int changed = 0;

	if (ifp->if_hw_tsomax != max->tsomaxbytes ||
	    ifp->if_hw_tsomaxsegcount != max->tsomaxsegcount ||
	    ifp->if_hw_tsomaxsegsize != max->tsomaxsegsize)
		changed = 1;
	ifp->if_hw_tsomax = max->tsomaxbytes;
	ifp->if_hw_tsomaxsegcount = max->tsomaxsegcount;
	ifp->if_hw_tsomaxsegsize = max->tsomaxsegsize;
	return (changed);
}

void *
ifr_data_get_ptr(void *ifrp)
{
	return (((struct ifreq *)ifrp)->ifr_ifru.ifru_data);
}

void *
ifr_buffer_get_buffer(void *data)
{
	return (((struct ifreq *)data)->ifr_ifru.ifru_buffer.buffer);
}

size_t
ifr_buffer_get_length(void *data)
{
	return (((struct ifreq *)data)->ifr_ifru.ifru_buffer.length);
}

uint64_t
if_get_counter_default(if_t ifp, ift_counter counter)
{
	KASSERT(counter < IFCOUNTERS, ("%s: counter %d", __func__, counter));
	return (counter_u64_fetch(ifp->if_counters[counter]));
}

void
if_inc_counter(if_t ifp, ift_counter counter, int64_t increment)
{
	KASSERT(counter < IFCOUNTERS, ("%s: counter %d", __func__, counter));
	counter_u64_add(ifp->if_counters[counter], increment);
}

uint64_t
if_getcounter(if_t ifp, ift_counter counter)
{
	return (ifp->if_get_counter(ifp, counter));
}

void
if_data_copy(if_t ifp, struct if_data *ifd)
{
	bzero(ifd, sizeof(*ifd));
	ifd->ifi_type = ifp->if_type;
	ifd->ifi_addrlen = ifp->if_addrlen;
	ifd->ifi_hdrlen = ifp->if_hdrlen;
	ifd->ifi_link_state = ifp->if_link_state;
	ifd->ifi_datalen = sizeof(*ifd);
	ifd->ifi_mtu = ifp->if_mtu;
	ifd->ifi_metric = ifp->if_metric;
	ifd->ifi_baudrate = ifp->if_baudrate;
	ifd->ifi_hwassist = ifp->if_hwassist;
	ifd->ifi_epoch = ifp->if_epoch;
	ifd->ifi_lastchange = ifp->if_lastchange;
	ifd->ifi_ipackets = if_getcounter(ifp, IFCOUNTER_IPACKETS);
	ifd->ifi_ierrors = if_getcounter(ifp, IFCOUNTER_IERRORS);
	ifd->ifi_opackets = if_getcounter(ifp, IFCOUNTER_OPACKETS);
	ifd->ifi_oerrors = if_getcounter(ifp, IFCOUNTER_OERRORS);
	ifd->ifi_collisions = if_getcounter(ifp, IFCOUNTER_COLLISIONS);
	ifd->ifi_ibytes = if_getcounter(ifp, IFCOUNTER_IBYTES);
	ifd->ifi_obytes = if_getcounter(ifp, IFCOUNTER_OBYTES);
	ifd->ifi_imcasts = if_getcounter(ifp, IFCOUNTER_IMCASTS);
	ifd->ifi_omcasts = if_getcounter(ifp, IFCOUNTER_OMCASTS);
	ifd->ifi_iqdrops = if_getcounter(ifp, IFCOUNTER_IQDROPS);
	ifd->ifi_oqdrops = if_getcounter(ifp, IFCOUNTER_OQDROPS);
	ifd->ifi_noproto = if_getcounter(ifp, IFCOUNTER_NOPROTO);
}

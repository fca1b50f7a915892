#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# A disk or a network card whose back end is this script, and not Linux's: run in dom0.  It uses only
# xenstore; badvbd and badvif answer the requests in the rings.
#
#	badback.sh TYPE DOMAIN begin [KEY=VALUE ...]	create disk xvdh (vbd) or card 7 (vif), and offer what
#							a good back end does, and KEYs
#	badback.sh TYPE DOMAIN offer KEY=VALUE ...	write keys of the back end; KEY= removes one
#	badback.sh TYPE DOMAIN front STATE ...		wait until the front end is in one of these states
#	badback.sh TYPE DOMAIN live [KEY=VALUE ...]	once the front end is ready, connect with the keys
#							of a good disk, and KEYs
#	badback.sh TYPE DOMAIN try KEY=VALUE ...	all of it: begin, live with KEYs, print the state, end
#	badback.sh TYPE DOMAIN tell VIOLATION ...		run /run/badvbd or /run/badvif
#	badback.sh TYPE DOMAIN again			disconnect from a front end that closes, and begin again
#	badback.sh TYPE DOMAIN end			remove the device
#
# Linux's drivers must not use the device: while this script runs, no back end is started for any guest.

set -u
type=$1
domain=$2
id=$(xl domid "$domain") || exit 1
what=$3
shift 3
case $type in
vbd) number=51824 ;;
vif) number=7 ;;
esac
front=/local/domain/$id/device/$type/$number
back=/local/domain/0/backend/$type/$id/$number

# This uses as few processes as possible, since each is slow to start here.
offer() {
	set -- "$@" end
	while [ "$1" != end ]; do
		case $1 in
		*=) xenstore-rm "$back/${1%=}" ;;
		*) set -- "$@" "$back/${1%%=*}" "${1#*=}" ;;
		esac
		shift
	done
	shift
	[ $# -eq 0 ] || xenstore-write -- "$@"
}

front() {
	tries=0
	while [ $tries -lt 150 ]; do
		state=$(xenstore-read "$front/state")
		for wanted; do
			[ "$state" != "$wanted" ] || return 0
		done
		sleep 0.1
		tries=$((tries + 1))
	done
	echo "the front end is in state $state, not in one of $*"
	return 1
}

# A key of the front end; of several names the first that exists.
value() {
	for name; do
		xenstore-read "$front/$name" 2>/dev/null && return
	done
}

self() {
	sh "$0" "$type" "$domain" "$@"
}

case $what in
begin)
	echo 0 >/sys/bus/xen-backend/drivers_autoprobe
	xenstore-write "$back" "" "$front" ""
	xenstore-chmod "$back" n0 "r$id"
	xenstore-chmod "$front" "n$id" r0
	offer "frontend=$front" "frontend-id=$id" online=1 state=1
	case $type in
	vbd)
		offer feature-max-indirect-segments=256 max-ring-page-order=4 multi-queue-max-queues=1 "$@"
		xenstore-write "$front/virtual-device" "$number" "$front/device-type" disk
		;;
	vif)
		offer feature-rx-copy=1 feature-sg=1 feature-gso-tcpv4=1 feature-ipv6-csum-offload=1 \
		    feature-split-event-channels=1 "$@"
		xenstore-write "$front/mac" 00:16:3e:00:00:07 "$front/handle" "$number"
		;;
	esac
	offer state=2
	# FreeBSD's core looks for a device when its directory is written, and not for what is in that.
	xenstore-write "$front/backend-id" 0 "$front/backend" "$back" "$front/state" 1 "$front" ""
	;;
offer) offer "$@" ;;
front) front "$@" ;;
live)
	case $type in
	vbd) front 3 && offer sectors=2048 sector-size=512 info=0 ;;
	vif) front 4 ;;
	esac || exit 1
	offer "$@"
	offer state=4
	;;
try)
	self begin && self live "$@" && front 4 5 6
	echo "$* makes $state"
	self end
	;;
tell)
	case $type in
	vbd) /run/badvbd "$id" "$(value ring-ref)" "$(value event-channel)" "$@" ;;
	vif)
		/run/badvif "$id" "$(value tx-ring-ref)" "$(value rx-ring-ref)" \
		    "$(value event-channel-tx event-channel)" \
		    "$(value event-channel-rx event-channel)" "$@"
		;;
	esac
	;;
again)
	case $type in
	vbd) front 5 6 && offer state=6 && front 1 && offer state=2 && self live && front 4 ;;
	vif)
		front 1 5 6 && offer state=5 && offer state=6 && front 1 6 || exit 1
		# A front end that has failed does not show when it has seen the change, which it has to before state 2.
		[ "$state" -eq 1 ] || sleep 1
		offer state=2
		;;
	esac
	;;
end)
	offer online=0 state=5
	front 5 6
	offer state=6
	front 6
	xenstore-rm "$front"
	xenstore-rm "$back"
	echo 1 >/sys/bus/xen-backend/drivers_autoprobe
	;;
esac

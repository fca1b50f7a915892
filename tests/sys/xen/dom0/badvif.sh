#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# A network card whose back end is badvif, and not Linux's: run in dom0.
#
#	badvif.sh DOMAIN begin [KEY=VALUE ...]	make card 7, offer what a good back end does, and KEYs
#	badvif.sh DOMAIN offer KEY=VALUE ...	write keys of the back end; KEY= takes one away
#	badvif.sh DOMAIN front STATE ...	wait until the front end is in one of these states
#	badvif.sh DOMAIN live			once the front end is ready, be so, too
#	badvif.sh DOMAIN again			close, and begin again once the front end has closed
#	badvif.sh DOMAIN tell LIE ...		run /run/badvif
#	badvif.sh DOMAIN end			take the card away
#
# Linux's driver is kept away from it: while this is at work no back end is started for any guest.

set -u
id=$(xl domid "$1") || exit 1
what=$2
shift 2
front=/local/domain/$id/device/vif/7
back=/local/domain/0/backend/vif/$id/7

offer() {
	for pair; do
		case $pair in
		*=) xenstore-rm "$back/${pair%=}" ;;
		*) xenstore-write -- "$back/${pair%%=*}" "${pair#*=}" ;;
		esac
	done
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

value() {
	xenstore-read "$front/$1" 2>/dev/null
}

case $what in
begin)
	echo 0 >/sys/bus/xen-backend/drivers_autoprobe
	xenstore-write "$back" "" "$front" ""
	xenstore-chmod "$back" n0 "r$id"
	xenstore-chmod "$front" "n$id" r0
	offer "frontend=$front" "frontend-id=$id" online=1 state=1 feature-rx-copy=1 feature-sg=1 \
	    feature-gso-tcpv4=1 feature-ipv6-csum-offload=1 feature-split-event-channels=1
	offer "$@"
	offer state=2
	xenstore-write "$front/mac" 00:16:3e:00:00:07 "$front/handle" 7 "$front/backend-id" 0 \
	    "$front/backend" "$back" "$front/state" 1
	;;
offer) offer "$@" ;;
front) front "$@" ;;
live)
	front 4 && offer state=4
	;;
again)
	front 1 5 6 && offer state=5 && offer state=6 && front 1 6 && offer state=2
	;;
tell)
	tx=$(value event-channel-tx || value event-channel)
	rx=$(value event-channel-rx || value event-channel)
	/run/badvif "$id" "$(value tx-ring-ref)" "$(value rx-ring-ref)" "$tx" "$rx" "$@"
	;;
end)
	offer online=0 state=5
	front 6
	xenstore-rm "$front"
	xenstore-rm "$back"
	echo 1 >/sys/bus/xen-backend/drivers_autoprobe
	;;
esac

#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# A disk whose back end is this script, and not Linux's: run in dom0.  It speaks by xenstore; a request
# is answered by badvbd only.
#
#	badvbd.sh DOMAIN begin [KEY=VALUE ...]	make disk xvdh, offer what a good back end does, and KEYs
#	badvbd.sh DOMAIN offer KEY=VALUE ...	write keys of the back end; KEY= takes one away
#	badvbd.sh DOMAIN front STATE ...	wait until the front end is in one of these states
#	badvbd.sh DOMAIN live [KEY=VALUE ...]	say what a good disk does, and KEYs; then Connected
#	badvbd.sh DOMAIN try KEY=VALUE ...	all of it: begin, live with KEYs, tell the state, end
#	badvbd.sh DOMAIN tell LIE		run /run/badvbd
#	badvbd.sh DOMAIN again			let go of a front end that closes, and begin again
#	badvbd.sh DOMAIN end			take the disk away
#
# Linux's driver is kept away from it: while this is at work no back end is started for any guest.

set -u
domain=$1
id=$(xl domid "$domain") || exit 1
what=$2
shift 2
front=/local/domain/$id/device/vbd/51824
back=/local/domain/0/backend/vbd/$id/51824

# In as few programs as can be: each takes its time here.
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

case $what in
begin)
	echo 0 >/sys/bus/xen-backend/drivers_autoprobe
	xenstore-write "$back" "" "$front" ""
	xenstore-chmod "$back" n0 "r$id"
	xenstore-chmod "$front" "n$id" r0
	offer "frontend=$front" "frontend-id=$id" online=1 state=1 feature-max-indirect-segments=256 \
	    max-ring-page-order=4 multi-queue-max-queues=1 "$@"
	offer state=2
	xenstore-write "$front/virtual-device" 51824 "$front/device-type" disk "$front/backend-id" 0 \
	    "$front/backend" "$back" "$front/state" 1
	;;
offer) offer "$@" ;;
front) front "$@" ;;
live)
	front 3 || exit 1
	offer sectors=2048 sector-size=512 info=0
	offer "$@"
	offer state=4
	;;
try)
	sh "$0" "$domain" begin && sh "$0" "$domain" live "$@" && front 4 5 6
	echo "$* makes $state"
	sh "$0" "$domain" end
	;;
tell)
	/run/badvbd "$id" "$(xenstore-read "$front/ring-ref")" \
	    "$(xenstore-read "$front/event-channel")" "$1"
	;;
again)
	front 5 6 && offer state=6 && front 1 && offer state=2 && sh "$0" "$domain" live && front 4
	;;
end)
	offer online=0 state=5
	front 5 6
	offer state=6
	xenstore-rm "$front"
	xenstore-rm "$back"
	echo 1 >/sys/bus/xen-backend/drivers_autoprobe
	;;
esac

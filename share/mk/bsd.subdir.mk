#
# SPDX-License-Identifier: BSD-2-Clause
#
# Make `all` in each folder of SUBDIR, side by side.
#

.MAIN: all
.for _dir in ${SUBDIR}
all: _sub.${_dir}
_sub.${_dir}: .PHONY .MAKE
	@mkdir -p ${.OBJDIR}/${_dir}
	@${.MAKE} -C ${.CURDIR}/${_dir} MAKEOBJDIR=${.OBJDIR}/${_dir} all
.endfor

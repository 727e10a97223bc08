# SPDX-License-Identifier: GPL-2.0
#
# For people. What the kernel's build needs is in Kbuild.
#
#   make                build zbd.ko for the running kernel
#   make KDIR=DIR       build it for the kernel whose build directory is DIR
#   make install        install the module (INSTALL_MOD_PATH for another root)
#   make clean
#
# Everything else runs in the lab, which brings its own kernel and tools:
#
#   make demo | test | check | bench

RELEASE := $(shell uname -r)

# Debian's headers lack what Rust modules need; tools/prepare-kernel adds it and
# leaves the command that builds with it.
prepared := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/zbd-kernel/$(RELEASE)

ifdef KDIR
kbuild := $(MAKE) -C $(KDIR)
rmeta := $(KDIR)/rust/libkernel.rmeta
else ifneq ($(wildcard $(prepared)/zbd-kbuild),)
kbuild := $(patsubst make,$(MAKE),$(shell cat $(prepared)/zbd-kbuild))
rmeta := $(prepared)/rust/libkernel.rmeta
else
kbuild := $(MAKE) -C /lib/modules/$(RELEASE)/build
rmeta := /lib/modules/$(RELEASE)/build/rust/libkernel.rmeta
endif

.PHONY: module
module: $(rmeta)
	+$(kbuild) M=$(CURDIR) modules

$(rmeta):
	@echo "make: no $@: this kernel is not ready for Rust modules." >&2
	@echo "make: run tools/prepare-kernel, or name a prepared build directory with KDIR=" >&2
	@false

.PHONY: install
install: module
	+$(kbuild) M=$(CURDIR) modules_install

.PHONY: clean
clean:
	+$(kbuild) M=$(CURDIR) clean

.PHONY: demo test check
demo test check:
	tools/lab $@

# ROUNDS=5 SECONDS=4 measure longer.
.PHONY: bench
bench:
	tools/lab bench $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SECONDS),--seconds $(SECONDS))

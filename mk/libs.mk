# libs.mk: third-party libraries. A library is linked when, and only when, some source includes its header: pc-name/header.

PKG_CONFIG ?= pkg-config
KNOWN_LIBS := jansson/jansson.h libxxhash/xxhash.h nettle/nettle libpcre2-8/pcre2.h yaml-0.1/yaml.h

# Every header included in angle brackets, once.
SYSTEM_INCLUDES := $(shell find src -name '*.[ch]' -exec sed -n 's/^ *\# *include *<\([^>]*\)>.*/\1/p' {} + | sort -u)
pc_of   = $(firstword $(subst /, ,$(1)))
used_if = $(if $(filter $(patsubst $(call pc_of,$(1))/%,%,$(1)) $(patsubst $(call pc_of,$(1))/%,%,$(1))/%,$(SYSTEM_INCLUDES)),$(call pc_of,$(1)))
LIBS_PC := $(strip $(foreach l,$(KNOWN_LIBS),$(call used_if,$(l))))

ifneq ($(LIBS_PC),)
LIBS_MISSING := $(strip $(foreach l,$(LIBS_PC),$(shell $(PKG_CONFIG) --exists $(l) || echo $(l))))
ifneq ($(LIBS_MISSING),)
$(error pkg-config does not find $(LIBS_MISSING): run ./bootstrap, which installs what is missing and then runs make)
endif
LIB_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(LIBS_PC))
LIBS       := $(shell $(PKG_CONFIG) --libs $(LIBS_PC))
endif
LIBS += $(SYSTEM_LIBS)

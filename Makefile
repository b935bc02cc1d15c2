# Makefile: builds, tests and installs anneal. GNU make 3.81 or newer (what macOS ships).
#
#   make                 build/libanneal.a, the shared library, build/anneal
#   make test            every check and every test; T=unit/test_map runs one, T=unit a folder
#   make demo            trains a small model on the built-in text, then samples from it
#   make install         PREFIX=/usr/local DESTDIR=
#   make help            the other targets
#
# Variables: CC, BUILD (output folder), SAN=address|undefined|thread (a build of its own in build/address, ...), WERROR= (turns
# warnings back into warnings), SRCS (the library's sources: every .c under src/ by default), EXTRA_CFLAGS, EXTRA_LDFLAGS.

VERSION := $(shell sed -n 's/^.define AN_VERSION "\(.*\)"/\1/p' include/anneal.h)
SONAME  := $(firstword $(subst ., ,$(VERSION)))
.DEFAULT_GOAL := all
MAKEFLAGS += -r
.SUFFIXES:
.DELETE_ON_ERROR:
.PHONY: all help clean

comma := ,
BUILD ?= build$(if $(SAN),/$(subst $(comma),-,$(SAN)))

include mk/toolchain.mk
include mk/libs.mk
include mk/embed.mk

# ---- sources: discovered, never listed. kernels/cpu/ is compiled once for each instruction set, cli/ is the program.
SRCS      ?= $(filter-out src/cli/% src/kernels/cpu/%,$(sort $(shell find src -name '*.c')))
TMPL_SRCS := $(sort $(wildcard src/kernels/cpu/*.c))
CLI_SRCS  := $(sort $(wildcard src/cli/*.c))

LIB_OBJS  := $(SRCS:src/%.c=$(BUILD)/obj/%.o) $(GEN_SRCS:$(BUILD)/gen/%.c=$(BUILD)/obj/gen/%.o) \
             $(foreach isa,$(ISAS),$(TMPL_SRCS:src/%.c=$(BUILD)/obj/%.$(isa).o)) \
             $(foreach isa,$(TILE_ISAS),$(TILE_SRCS:src/%.c=$(BUILD)/obj/%.$(isa).o))
CLI_OBJS  := $(CLI_SRCS:src/%.c=$(BUILD)/obj/%.o)

LIB_A   := $(BUILD)/libanneal.a
CLI_A   := $(if $(CLI_SRCS),$(BUILD)/libcli.a)
PROGRAM := $(if $(CLI_SRCS),$(BUILD)/anneal)

all: $(LIB_A) $(LIB_SO) $(PROGRAM)

$(LIB_A): $(LIB_OBJS)
	@mkdir -p $(@D)
	$(call say,AR,$@)rm -f $@ && $(AR) rcs $@ $(LIB_OBJS)

$(LIB_SO): $(LIB_OBJS)
	$(call say,LD,$@)$(CC) $(LDFLAGS) $(SHARED_FLAGS) -o $@ $(LIB_OBJS) $(LIBS)

$(BUILD)/libcli.a: $(CLI_OBJS)
	@mkdir -p $(@D)
	$(call say,AR,$@)rm -f $@ && $(AR) rcs $@ $(CLI_OBJS)

$(BUILD)/anneal: $(CLI_A) $(LIB_A) $(COMMIT_OBJ)
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $(COMMIT_OBJ) $(CLI_A) $(LIB_A) $(LIBS)

# ---- objects
$(BUILD)/obj/%.o: src/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CPPFLAGS) $(CFLAGS) $(LIB_CFLAGS) -MMD -MP -c -o $@ $<

# Resizing is what a reader of images does most of its time: its loops become vector instructions.
$(BUILD)/obj/io/data/image_fit.o: LIB_CFLAGS += -O3

$(BUILD)/obj/gen/%.o: $(BUILD)/gen/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

# One rule for each instruction set: src/kernels/cpu/x.c becomes x.avx2.o, x.portable.o, ...
define isa_rule
$(BUILD)/obj/kernels/cpu/%.$(1).o: src/kernels/cpu/%.c $(BUILD)/flags
	@mkdir -p $$(@D)
	$$(call say,CC,$$< ($(1)))$$(CC) $$(CPPFLAGS) $$(CFLAGS) $$(TMPL_CFLAGS) $$(ISA_FLAGS_$(1)) -DAN_ISA=$(1) -MMD -MP -c -o $$@ $$<

endef
$(eval $(foreach isa,$(ISAS) $(TILE_ISAS),$(call isa_rule,$(isa))))

# The compiler and its flags, rewritten only when they change: objects are rebuilt for another compiler, not for a touched Makefile.
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' '$(CC) $(CPPFLAGS) $(CFLAGS) $(TMPL_CFLAGS) $(ISAS) $(TILE_ISAS)' >$@.new; \
	 if cmp -s $@.new $@; then rm -f $@.new; else mv -f $@.new $@; fi
FORCE:

-include $(LIB_OBJS:.o=.d) $(CLI_OBJS:.o=.d)

include mk/test.mk
include mk/words.mk
include mk/install.mk
include mk/package.mk
include mk/cross.mk
include mk/dev.mk
include mk/fuzz.mk

clean:
	rm -rf $(BUILD)

help:
	@sed -n 's/^#: //p' $(MAKEFILE_LIST)

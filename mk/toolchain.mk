# toolchain.mk: the compiler, its flags, the instruction sets and what differs between Linux and macOS.

HOSTCC ?= cc
MACHINE := $(shell $(CC) -dumpmachine)
ARCH    := $(if $(filter x86_64-% amd64-%,$(MACHINE)),x86_64,$(if $(filter aarch64-% arm64-%,$(MACHINE)),arm64,other))
DARWIN  := $(findstring darwin,$(MACHINE))

# V=1 prints whole commands.
say = $(if $(V),,@printf '  %-4s%s\n' '$(1)' '$(2)';)

WERROR   ?= -Werror
CPPFLAGS += -Isrc -Iinclude
CFLAGS   += -std=c17 -O2 -g -ffp-contract=off -fvisibility=hidden -fPIC -pthread -Wall -Wextra -Wpedantic $(WERROR) $(EXTRA_CFLAGS)
LDFLAGS  += -pthread $(EXTRA_LDFLAGS)
TMPL_CFLAGS := -O3 -fno-math-errno -fno-trapping-math
CLANG := $(findstring clang,$(shell $(CC) --version))
# gcc's elimination of common subexpressions across registers takes 40 of the 114 s that gemm.c needs for tile registers and finds nothing:
# the code is as large without it, and computes the same bits.
TMPL_CFLAGS += $(if $(CLANG),,-fno-gcse)

ifneq ($(SAN),)
# Eight times faster to compile for the kernels, twice for the rest, with the same bits; a finding needs the lines of -g1, not its variables.
TMPL_CFLAGS := $(subst -O3,-O1,$(TMPL_CFLAGS))
CFLAGS      += -O1 -g1
# gcc up to 13.2 aligns the frames in which it looks for uses after a return to 32 bytes; vectors of 512 bits need 64, and a load faults.
TMPL_CFLAGS += $(if $(findstring address,$(SAN)),$(if $(CLANG),,--param asan-use-after-return=0))
CFLAGS  += -fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer
CPPFLAGS += -DAN_SANITIZE=$(SAN)
LDFLAGS += -fsanitize=$(SAN)
endif

# ---- instruction sets of src/kernels/cpu, best first
ISA_FLAGS_avx2       := -mavx2 -mfma -mf16c -mbmi2
ISA_FLAGS_avx512     := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mbmi2 -mprefer-vector-width=512
ISA_FLAGS_avx512bf16 := $(ISA_FLAGS_avx512) -mavx512bf16
ISA_FLAGS_neon       :=
ISA_FLAGS_portable   :=
# Tile registers, for the files of TILE_SRCS; the rest of their tables is another set's. amx_emulated: the same arithmetic in plain C.
ISA_FLAGS_amx          := $(ISA_FLAGS_avx512bf16) -mamx-tile -mamx-bf16 -DAN_TILES=1 -DAN_REST_ISA=avx512bf16
ISA_FLAGS_amx_emulated := -O1 -DAN_TILES=1 -DAN_REST_ISA=portable
TILE_SRCS          := src/kernels/cpu/attn.c src/kernels/cpu/gemm.c src/kernels/cpu/conv.c src/kernels/cpu/peak_flops.c
TILE_ISAS_x86_64   := amx amx_emulated
TILE_ISAS_arm64    := amx_emulated
TILE_ISAS_other    := amx_emulated
TILE_ISAS          := $(TILE_ISAS_$(ARCH))
ISAS_x86_64 := avx512bf16 avx512 avx2 portable
ISAS_arm64  := neon portable
ISAS_other  := portable
ISAS        := $(ISAS_$(ARCH))

# A sanitizer sees only what runs: sets that this processor lacks are not built for it. They are half of what such a build compiles.
ifneq ($(SAN),)
NEEDS_avx2       := avx2
NEEDS_avx512     := avx512bw
NEEDS_avx512bf16 := avx512_bf16
NEEDS_amx        := amx_bf16 avx512_bf16
CPU_HAS   := $(shell sed -n '/^flags/{p;q;}' /proc/cpuinfo 2>/dev/null)
runs_here  = $(if $(CPU_HAS),$(foreach isa,$(1),$(if $(filter-out $(CPU_HAS),$(NEEDS_$(isa))),,$(isa))),$(1))
ISAS      := $(call runs_here,$(ISAS))
TILE_ISAS := $(call runs_here,$(TILE_ISAS))
endif

# Tells the one file that lists the tables (which sets are linked in) without a second list: -DAN_HAVE_ISA_avx2 ...
CPPFLAGS += $(foreach isa,$(ISAS) $(TILE_ISAS),-DAN_HAVE_ISA_$(isa))

ifneq ($(DARWIN),)
LIB_SO       := $(BUILD)/libanneal.$(SONAME).dylib
LIB_SO_LINK  := libanneal.dylib
SHARED_FLAGS  = -dynamiclib -install_name $(PREFIX)/lib/$(notdir $(LIB_SO)) -current_version $(VERSION) -Wl,-dead_strip_dylibs
SYSTEM_LIBS  := -lm
else
LIB_SO       := $(BUILD)/libanneal.so.$(SONAME)
LIB_SO_LINK  := libanneal.so
SHARED_FLAGS  = -shared -Wl,-soname,$(notdir $(LIB_SO)) $(if $(SAN),,-Wl,-z,defs)
SYSTEM_LIBS  := -lm -ldl -lpthread
LDFLAGS      += -Wl,--as-needed
endif

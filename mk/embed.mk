# embed.mk: files that the library carries as text: `const char an_embed_NAME[]` (NUL added) and `size_t an_embed_NAME_bytes`.
# EMBED lists name:file pairs. A kernel template's name is its file name with the dot as an underscore: gemm.msl is gemm_msl.

TEMPLATE_TEXTS := $(sort $(foreach e,h inc msl cu,$(wildcard src/kernel/templates/*.$(e))))
EMBED := $(if $(wildcard src/base/exact.h),exact:src/base/exact.h) \
         $(foreach f,$(TEMPLATE_TEXTS),$(subst .,_,$(notdir $(f))):$(f))

embed_name = $(firstword $(subst :, ,$(1)))
embed_file = $(lastword $(subst :, ,$(1)))
GEN_SRCS  := $(foreach e,$(EMBED),$(BUILD)/gen/embed_$(call embed_name,$(e)).c)

$(BUILD)/tools/%: tools/%.c
	@mkdir -p $(@D)
	$(call say,HOST,$<)$(HOSTCC) -std=c17 -O2 -Wall -Wextra -o $@ $<

define embed_rule
$(BUILD)/gen/embed_$(call embed_name,$(1)).c: $(call embed_file,$(1)) $(BUILD)/tools/embed
	@mkdir -p $$(@D)
	$$(call say,GEN,$$@)$(BUILD)/tools/embed $(call embed_name,$(1)) $(call embed_file,$(1)) $$@

endef
$(eval $(foreach e,$(EMBED),$(call embed_rule,$(e))))

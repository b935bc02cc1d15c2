# embed.mk: files that the library carries. As text, `const char an_embed_NAME[]` (NUL added) and `size_t an_embed_NAME_bytes`: EMBED lists
# name:file pairs. A kernel template's name is its file name with the dot as an underscore, gemm.msl is gemm_msl; a dialect's
# is dialect_msl_h for msl.h. And the built-in training text, an_corpus (src/io/data/corpus.h).

TEMPLATE_TEXTS := $(sort $(foreach e,h inc msl cu,$(wildcard src/kernels/gpu/*.$(e))))
DIALECT_TEXTS  := $(sort $(wildcard src/kernels/dialect/*.h))
EMBED := $(if $(wildcard src/base/exact.h),exact:src/base/exact.h) dashboard_page:src/report/dashboard_page.html mlx_gpt:src/cli/mlx_gpt.py \
         $(foreach f,$(TEMPLATE_TEXTS),$(subst .,_,$(notdir $(f))):$(f)) \
         $(foreach f,$(DIALECT_TEXTS),dialect_$(subst .,_,$(notdir $(f))):$(f))

embed_name = $(firstword $(subst :, ,$(1)))
embed_file = $(lastword $(subst :, ,$(1)))
GEN_SRCS  := $(foreach e,$(EMBED),$(BUILD)/gen/embed_$(call embed_name,$(e)).c)

$(BUILD)/tools/%: tools/%.c
	@mkdir -p $(@D)
	$(call say,CC,$<)$(HOSTCC) -std=c17 -O2 -Wall -Wextra -o $@ $<

define embed_rule
$(BUILD)/gen/embed_$(call embed_name,$(1)).c: $(call embed_file,$(1)) $(BUILD)/tools/embed
	@mkdir -p $$(@D)
	$$(call say,GEN,$$@)$(BUILD)/tools/embed $(call embed_name,$(1)) $(call embed_file,$(1)) $$@

endef
$(eval $(foreach e,$(EMBED),$(call embed_rule,$(e))))

# The corpus is the project's own documents and its sources' comments. Sources are order-only: an edit does not pack and compile it again, so
# in a used build folder the corpus may have yesterday's comments; nothing but training on the built-in text reads it.
CORPUS_DOCUMENTS := $(sort $(wildcard *.md docs/*.md bench/*/*.md tests/*/*.md))
CORPUS_SOURCES   := $(sort $(wildcard include/*.h) $(shell find src -name '*.[ch]' -o -name '*.def' -o -name '*.inc'))
GEN_SRCS += $(BUILD)/gen/corpus.c
$(BUILD)/gen/corpus.c: tools/pack_corpus.sh $(CORPUS_DOCUMENTS) | $(CORPUS_SOURCES)
	@mkdir -p $(@D)
	$(call say,GEN,$@)sh tools/pack_corpus.sh $@ $(CORPUS_DOCUMENTS) $(CORPUS_SOURCES)

# The commit, for `anneal version` and the logbook. It is linked into the program alone, so that a commit relinks one file.
COMMIT_OBJ := $(BUILD)/obj/gen/commit.o
$(BUILD)/gen/commit.c: FORCE
	@mkdir -p $(@D)
	@printf 'extern const char an_commit[];\nconst char an_commit[] = "%s";\n' "$$(git describe --always --dirty --exclude='*' 2>/dev/null)" >$@.new; \
	 if cmp -s $@.new $@; then rm -f $@.new; else mv -f $@.new $@; fi

# words.mk: the manual page and the shells' completions, made by the program from its own tables: `anneal help --format ...`.

WORDS := $(addprefix $(BUILD)/share/,anneal.1 anneal.bash _anneal anneal.fish)
.PHONY: words
#: words       the manual page and completions for bash, zsh and fish, in build/share
words: $(WORDS)

$(BUILD)/share/anneal.1: man/anneal.1.in $(PROGRAM)
	@mkdir -p $(@D)
	$(call say,GEN,$@)$(WRAP) $(PROGRAM) help --format man >$@.commands && \
	    sed -e '/^@COMMANDS@$$/{' -e 'r $@.commands' -e 'd' -e '}' man/anneal.1.in >$@ && rm $@.commands
$(BUILD)/share/anneal.bash: $(PROGRAM)
	@mkdir -p $(@D)
	$(call say,GEN,$@)$(WRAP) $(PROGRAM) help --format bash >$@
$(BUILD)/share/_anneal: $(PROGRAM)
	@mkdir -p $(@D)
	$(call say,GEN,$@)$(WRAP) $(PROGRAM) help --format zsh >$@
$(BUILD)/share/anneal.fish: $(PROGRAM)
	@mkdir -p $(@D)
	$(call say,GEN,$@)$(WRAP) $(PROGRAM) help --format fish >$@

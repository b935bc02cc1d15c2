# install.mk: make install. PREFIX is where it will run, DESTDIR a staging root for packagers.

PREFIX ?= /usr/local
PUBLIC_HEADERS := $(wildcard include/anneal.h include/anneal_nn.h include/anneal_decode.h include/anneal_import.h include/anneal_interop.h)

# Where each shell looks for completions, below PREFIX.
BASH_COMPLETIONS := share/bash-completion/completions
ZSH_COMPLETIONS  := share/zsh/site-functions
FISH_COMPLETIONS := share/fish/vendor_completions.d

.PHONY: install
#: install     program, libraries, headers, manual, completions and anneal.pc below PREFIX (DESTDIR for packagers)
install: all $(if $(PROGRAM),words)
	install -d '$(DESTDIR)$(PREFIX)/bin' '$(DESTDIR)$(PREFIX)/include' '$(DESTDIR)$(PREFIX)/lib/pkgconfig'
	$(if $(PROGRAM),install -m 755 $(PROGRAM) '$(DESTDIR)$(PREFIX)/bin/')
	$(if $(PROGRAM),install -d $(foreach d,share/man/man1 $(BASH_COMPLETIONS) $(ZSH_COMPLETIONS) $(FISH_COMPLETIONS),'$(DESTDIR)$(PREFIX)/$(d)'))
	$(if $(PROGRAM),install -m 644 $(BUILD)/share/anneal.1 '$(DESTDIR)$(PREFIX)/share/man/man1/')
	$(if $(PROGRAM),install -m 644 $(BUILD)/share/anneal.bash '$(DESTDIR)$(PREFIX)/$(BASH_COMPLETIONS)/anneal')
	$(if $(PROGRAM),install -m 644 $(BUILD)/share/_anneal '$(DESTDIR)$(PREFIX)/$(ZSH_COMPLETIONS)/')
	$(if $(PROGRAM),install -m 644 $(BUILD)/share/anneal.fish '$(DESTDIR)$(PREFIX)/$(FISH_COMPLETIONS)/')
	install -m 644 $(PUBLIC_HEADERS) '$(DESTDIR)$(PREFIX)/include/'
	install -m 644 $(LIB_A) '$(DESTDIR)$(PREFIX)/lib/'
	install -m 755 $(LIB_SO) '$(DESTDIR)$(PREFIX)/lib/'
	ln -sf $(notdir $(LIB_SO)) '$(DESTDIR)$(PREFIX)/lib/$(LIB_SO_LINK)'
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' -e 's|@REQUIRES@|$(LIBS_PC)|' -e 's|@LIBS@|$(SYSTEM_LIBS)|' \
	    mk/anneal.pc.in >'$(DESTDIR)$(PREFIX)/lib/pkgconfig/anneal.pc'

.PHONY: wheel
#: wheel       the Python package with the library inside, for every Python from 3.10 on, in BUILD
wheel: $(LIB_SO)
	python3 tools/wheel.py $(LIB_SO) $(BUILD)

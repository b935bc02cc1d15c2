# package.mk: a release's tarball, a Debian package, a Homebrew formula.

HOMEPAGE ?= $(shell git remote get-url origin 2>/dev/null || echo file://$(CURDIR))
DIST     := $(BUILD)/anneal-$(VERSION).tar.gz
DIST_URL ?= file://$(abspath $(DIST))
DEB      := $(BUILD)/anneal_$(VERSION)_$(shell dpkg --print-architecture 2>/dev/null || echo none).deb
SHA256   := $(if $(DARWIN),shasum -a 256,sha256sum)

.PHONY: dist deb formula
#: dist        the sources of HEAD as build/anneal-VERSION.tar.gz
dist:
	@mkdir -p $(BUILD)
	git archive --format=tar.gz --prefix=anneal-$(VERSION)/ -o $(DIST) HEAD

#: deb         a Debian package of the program, the library and its headers, in build/
deb: words
	rm -rf '$(BUILD)/deb'
	$(MAKE) --no-print-directory install PREFIX=/usr DESTDIR='$(abspath $(BUILD))/deb' \
	    ZSH_COMPLETIONS=share/zsh/vendor-completions >/dev/null
	sh packaging/debian/build '$(BUILD)/deb' '$(DEB)' '$(VERSION)'

#: formula     a Homebrew formula for DIST_URL (the tarball of `make dist` unless set), in build/anneal.rb
formula: dist
	sed -e 's|@HOMEPAGE@|$(HOMEPAGE)|' -e 's|@URL@|$(DIST_URL)|' -e 's|@VERSION@|$(VERSION)|' \
	    -e "s|@SHA256@|$$($(SHA256) '$(DIST)' | cut -d' ' -f1)|" packaging/homebrew/anneal.rb.in >'$(BUILD)/anneal.rb'

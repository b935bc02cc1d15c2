# install.mk: make install. PREFIX is where it will run, DESTDIR a staging root for packagers.

PREFIX ?= /usr/local
PUBLIC_HEADERS := $(wildcard include/anneal.h include/anneal_nn.h)

.PHONY: install
#: install     program, libraries, headers and anneal.pc below PREFIX (DESTDIR for packagers)
install: all
	install -d '$(DESTDIR)$(PREFIX)/bin' '$(DESTDIR)$(PREFIX)/include' '$(DESTDIR)$(PREFIX)/lib/pkgconfig'
	$(if $(PROGRAM),install -m 755 $(PROGRAM) '$(DESTDIR)$(PREFIX)/bin/')
	install -m 644 $(PUBLIC_HEADERS) '$(DESTDIR)$(PREFIX)/include/'
	install -m 644 $(LIB_A) '$(DESTDIR)$(PREFIX)/lib/'
	install -m 755 $(LIB_SO) '$(DESTDIR)$(PREFIX)/lib/'
	ln -sf $(notdir $(LIB_SO)) '$(DESTDIR)$(PREFIX)/lib/$(LIB_SO_LINK)'
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' -e 's|@REQUIRES@|$(LIBS_PC)|' -e 's|@LIBS@|$(SYSTEM_LIBS)|' \
	    mk/anneal.pc.in >'$(DESTDIR)$(PREFIX)/lib/pkgconfig/anneal.pc'

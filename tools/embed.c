/* embed.c: writes a file as a C array, so that the library carries it as text.
 *
 *     embed NAME FILE OUT.c      gives  const char an_embed_NAME[];  size_t an_embed_NAME_bytes;
 *
 * The array ends with a NUL that `bytes` does not count. Numbers and not a string literal: C17 promises only 4095
 * characters for a literal, and -Wpedantic holds us to it. Runs on the machine that builds. */
#include <stdio.h>
#include <stdlib.h>

static int fail(const char *what, const char *path)
{
    fprintf(stderr, "embed: %s: ", path);
    perror(what);
    return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: embed NAME FILE OUT.c\n");
        return EXIT_FAILURE;
    }
    const char *name = argv[1];
    FILE *in = fopen(argv[2], "rb");
    if (!in) return fail("open", argv[2]);
    FILE *out = fopen(argv[3], "wb");
    if (!out) return fail("create", argv[3]);

    fprintf(out, "/* Made by tools/embed from %s. */\n#include <stddef.h>\n", argv[2]);
    fprintf(out, "extern const char an_embed_%s[];\nextern const size_t an_embed_%s_bytes;\n", name, name);
    fprintf(out, "const char an_embed_%s[] = {\n", name);
    size_t bytes = 0;
    for (int c; (c = getc(in)) != EOF; bytes++)
        fprintf(out, "%s%s%d,", bytes % 24 == 0 && bytes ? "\n" : "", c > 127 ? "(char)" : "", c);
    fprintf(out, "0};\nconst size_t an_embed_%s_bytes = %zu;\n", name, bytes);

    if (ferror(in)) return fail("read", argv[2]);
    fclose(in);
    if (ferror(out) || fclose(out)) return fail("write", argv[3]);
    return EXIT_SUCCESS;
}

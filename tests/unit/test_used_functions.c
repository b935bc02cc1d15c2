/* test_used_functions.c: a module's text keeps every function that is used, by whatever way, and loses the others. */
#include "lib/test.h"

#include "codegen/used_functions.h"

#include <stdlib.h>
#include <string.h>

static void becomes(const char *text, const char *want)
{
    an_text out = {0};
    assert_true(an_used_functions(text, &out));
    assert_string_equal(out.data, want);
    an_text_free(&out);
}

static void unused_functions_go(void **state)
{
    (void)state;
    becomes("", "");
    becomes("int x;", "int x;");
    becomes("/* a */\nAN_FN int a(int x)\n{\n    return x;\n}\nint b;\n", "/* a */\nint b;\n");
    becomes("AN_FN int a(int x) { return x; }\nint b;\n", "int b;\n");
    becomes("template <class T>\nAN_FN T a(T x)\n{\n    return x;\n}\nint b;\n", "int b;\n");
    becomes("template <class T> AN_FN T a(T x) { return x; }\nint b;\n", "int b;\n");
    becomes("AN_FN_LARGE_ int a(int x,\n    int y)\n{\n    if (x) {\n    }\n    return x;\n}", "");
    /* a comment and a part of a word are no use, and neither is one's own */
    becomes("AN_FN int a(int x)\n{\n    return a(x);\n}\n/* a() */ int ba; // a\n", "/* a() */ int ba; // a\n");
    /* nor is that in another unused one, to whatever depth */
    becomes("AN_FN int a() { return 1; }\nAN_FN int b() { return a(); }\nAN_FN int c() { return b(); }\nint d;\n",
            "int d;\n");
}

static void used_functions_stay(void **state)
{
    (void)state;
    static const char *const whole[] = {
        "AN_FN int a() { return 1; }\nint d = a();\n",
        "int d() { return a(); }\nAN_FN int a() { return 1; }\n",
        "AN_FN int a()\n{\n    return 1;\n}\nAN_FN int b() { return a(); }\nAN_FN int c() { return b(); }\nint d = "
        "c();\n",
        /* all of a name, each with what it uses */
        "AN_FN int e() { return 1; }\nAN_FN int a(int x) { return x; }\nAN_FN int a(float x) { return e(); }\nint d = "
        "a(1);\n",
        /* by a macro, and two by each other */
        "#define A(x) a(x)\nAN_FN int a(int x) { return 1; }\nint d = A(1);\n",
        "AN_FN int a(int x);\nAN_FN int b(int x) { return a(x); }\nAN_FN int a(int x) { return x ? b(x - 1) : 0; "
        "}\nint d = b(1);\n",
        /* behind what looks like the begin of a comment or of a text */
        "AN_FN int a() { return 1; }\nconst char *s = \"/*\"; int d = a(); /* */\n",
        "AN_FN int a() { return 1; }\nconst char c = '\"'; int d = a(); // \"\n",
        "AN_FN int a() { return 1; }\nconst char *s = \"\\\"/*\"; int d = a();\n",
    };
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) becomes(whole[i], whole[i]);
}

static void what_is_no_whole_function_stays(void **state)
{
    (void)state;
    static const char *const whole[] = {
        "AN_FN int a(int x);\n",
        "AN_FN int a[2] = {1, 2};\n",
        "AN_FN int a(int x)\n{\n    return x;\n", /* no end */
        "AN_FN int a(int x)\n{\n    return x;\n} int b;\n",
        "#define AN_FN static\nint a() { return 1; }\n",
        "AN_FN int a(int x)\n{\n#define TWO 2\n    return x;\n}\n",
        "AN_FN int a(int x)\n{\n#ifdef B\n    return x;\n}\n#else\n    return 1;\n}\n#endif\n",
        "#ifdef B\nAN_FN int a(int x)\n{\n#else\nAN_FN int a(float x)\n{\n#endif\n    return 1;\n}\n",
        "template <class T> struct s {\n    T x;\n};\n",
    };
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) becomes(whole[i], whole[i]);
    becomes("AN_FN int a(int x)\n{\n#ifdef B\n    return x;\n#else\n    return 1;\n#endif\n}\nint b;\n", "int b;\n");
    becomes("#ifdef B\nAN_FN int a(int x) { return x; }\n#endif\nint b;\n", "#ifdef B\n#endif\nint b;\n");
}

/* Texts of random pieces, cut anywhere: whatever comes out is characters of it in their order. */
static void random_texts_are_only_shortened(void **state)
{
    (void)state;
    static const char *const piece[] = {"AN_FN int a(int x)",
                                        "\n{\n",
                                        "\n}\n",
                                        " { return b(); }\n",
                                        "template <class T>\n",
                                        "b();\n",
                                        "#if 1\n",
                                        "#endif\n",
                                        "/*",
                                        "*/",
                                        "\"",
                                        "'",
                                        "\n",
                                        "AN_FN void b(",
                                        ");",
                                        "// c\n",
                                        "AN_FN c",
                                        "(",
                                        "}",
                                        "\\"};
    unsigned seed = 7;
    for (int round = 0; round < 20000; round++) {
        an_text text = {0}, once = {0};
        for (int i = 0; i < 3 + round % 12; i++) {
            seed = seed * 1664525 + 1013904223;
            an_text_puts(&text, piece[(seed >> 16) % (sizeof piece / sizeof *piece)]);
        }
        assert_true(an_used_functions(text.data, &once));
        assert_true(once.len <= text.len);
        const char *from = text.data;
        for (size_t i = 0; i < once.len; i++) {
            while (*from && *from != once.data[i]) from++;
            assert_true(*from);
            from++;
        }
        an_text_free(&text);
        an_text_free(&once);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(unused_functions_go), cmocka_unit_test(used_functions_stay),
                                       cmocka_unit_test(what_is_no_whole_function_stays),
                                       cmocka_unit_test(random_texts_are_only_shortened)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_csv.c: records of comma-separated values: quotes, line ends, and what is refused, with its line. */
#include "lib/test.h"
#include "io/formats/csv.h"
#include <stdio.h>
#include <string.h>

/* All records as text: fields joined by '|', records by '/'; or the sentence of the failure. */
static const char *read_all(const char *text, size_t n, char out[2048])
{
    an_err err = {0};
    an_csv *r;
    const an_csv_field *f;
    size_t count, used = 0;
    if (an_csv_parse(&err, "x.csv", text, n, &r) != AN_OK) return snprintf(out, 2048, "%s", err.text), out;
    out[0] = 0;
    an_status status;
    while ((status = an_csv_next(&err, r, &f, &count)) == AN_OK && count > 0)
        for (size_t i = 0; i < count; i++)
            used +=
                (size_t)snprintf(out + used, 2048 - used, "%.*s%s", (int)f[i].n, f[i].data, i + 1 < count ? "|" : "/");
    if (status != AN_OK) {
        assert_int_not_equal(an_csv_next(NULL, r, &f, &count), AN_OK);
        snprintf(out, 2048, "%s", err.text);
    }
    an_csv_close(r);
    return out;
}

static void is(const char *text, const char *expected)
{
    char out[2048];
    assert_string_equal(read_all(text, strlen(text), out), expected);
}

static void fields_and_records_are_as_rfc_4180_says(void **state)
{
    (void)state;
    is("", "");
    is("a,b\n", "a|b/");
    is("a,b", "a|b/");
    is("a,b\r\nc,d\r\n", "a|b/c|d/");
    is("a,b\rc,d\r", "a|b/c|d/");
    is("\xEF\xBB\xBF"
       "a,b\n\n\r\n\nc,d\n",
       "a|b/c|d/");
    is("\"a,b\",\"say \"\"x\"\"\"\n", "a,b|say \"x\"/");
    is("\"two\nlines\",\"\r\n\"\n,\n", "two\nlines|\r\n/|/");
    is("\"\",\"\"\"\"\n", "|\"/");
    is("one\n\"one\"\n", "one/one/");
}

static void what_is_no_record_is_refused_with_its_line(void **state)
{
    (void)state;
    char out[2048];
    is("a,b\n\"c", "x.csv: line 2: the quote that opens a field here is never closed");
    is("a,b\n\"c\n\n\n", "x.csv: line 2: the quote that opens a field here is never closed");
    is("\"a\nb\",c\nd\"e,f\n", "x.csv: line 3: a quote inside a field; put the field in quotes and double the quote");
    is("a\n\"b\"c\n", "x.csv: line 2: text behind the quote that closes a field; double a quote that is meant");
    is("a,b\n\nc\n", "x.csv: line 3: 1 fields, the first record has 2; put a field with commas in quotes");
    is("a,b\nc,d,e\n", "x.csv: line 2: 3 fields, the first record has 2; put a field with commas in quotes");
    assert_string_equal(read_all("a\0b", 3, out), "x.csv: line 1: a NUL byte; the file is no text");
    assert_string_equal(read_all("\xFF\xFE"
                                 "a\0",
                                 4, out),
                        "x.csv: the text is UTF-16; save it as UTF-8");
    char many[AN_CSV_MAX_FIELDS + 8];
    memset(many, ',', sizeof many);
    assert_string_equal(read_all(many, sizeof many, out), "x.csv: line 1: more fields than 4096; is a quote missing?");
}

static an_status read_one(an_err *err, void *unused)
{
    (void)unused;
    static const char text[] = "text,label\n\"a\",b\n";
    const an_csv_field *f;
    an_csv *r;
    size_t n;
    AN_TRY(an_csv_parse(err, "x.csv", text, sizeof text - 1, &r));
    an_status status = an_csv_next(err, r, &f, &n);
    an_csv_close(r);
    return status;
}

static void a_refused_allocation_is_a_sentence(void **state)
{
    (void)state;
    test_refuse_each_allocation(read_one, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(fields_and_records_are_as_rfc_4180_says),
                                       cmocka_unit_test(what_is_no_record_is_refused_with_its_line),
                                       cmocka_unit_test(a_refused_allocation_is_a_sentence)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

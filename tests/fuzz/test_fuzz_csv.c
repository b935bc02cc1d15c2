/* Files of labelled texts. The first byte 'c' reads records and checks that fields are inside of what was given and that
 * records have one width; 't' opens a data set of texts, whose splits hold every text once. */
#include "io/data/labelled_texts.h"
#include "io/formats/csv.h"
#include "fuzz.h"

#include <unistd.h>

static bool check_records(const char *data, size_t bytes)
{
    an_err err = {0};
    an_csv *r;
    const an_csv_field *f;
    size_t n, width = 0, total = 0;
    an_status status = an_csv_parse(&err, "x.csv", data, bytes, &r);
    fuzz_check_sentence(status, &err);
    if (status != AN_OK) return false;
    while ((status = an_csv_next(&err, r, &f, &n)) == AN_OK && n > 0) {
        FUZZ_CHECK(width == 0 || n == width);
        width = n;
        for (size_t i = 0; i < n; i++) {
            FUZZ_CHECK(f[i].n <= bytes && memchr(f[i].data, 0, f[i].n) == NULL);
            total += f[i].n + 1;
        }
        FUZZ_CHECK(total <= bytes + 1);
    }
    fuzz_check_sentence(status, &err);
    an_csv_close(r);
    return status == AN_OK;
}

static bool check_texts(const char *data, size_t bytes)
{
    static char path[64];
    an_err err = {0};
    an_labelled_texts *t;
    snprintf(path, sizeof path, "%s/anneal-fuzz-%ld.csv", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp",
             (long)getpid());
    FILE *file = fopen(path, "wb");
    FUZZ_CHECK(file && fwrite(data, 1, bytes, file) == bytes && fclose(file) == 0);
    an_status status =
        an_labelled_texts_open(&err, &(an_labelled_texts_options){.source = path, .folds = 3, .fold = 1}, &t);
    (void)remove(path);
    fuzz_check_sentence(status, &err);
    if (status != AN_OK) return false;
    for (int split = 0; split < AN_N_SPLITS; split++)
        for (int64_t i = 0; i < an_labelled_texts_count(t, split); i++) {
            size_t n;
            int32_t label;
            const char *text = an_labelled_text(t, split, i, &n, &label);
            FUZZ_CHECK(memchr(text, 0, n) == NULL && label >= 0 && label < an_labelled_texts_classes(t)->n);
        }
    an_labelled_texts_close(t);
    return true;
}

static bool fuzz_one(const char *data, size_t bytes)
{
    if (bytes == 0) return false;
    return data[0] == 't' ? check_texts(data + 1, bytes - 1) : check_records(data + 1, bytes - 1);
}

static const fuzz_seed seeds[] = {
    SEED("ctext,label\n\"a, \"\"b\"\"\nc\",x\r\nd,y\n"),
    SEED("c\xEF\xBB\xBF"
         "a,b,c\r\n\r\n1,,\"\"\r\n"),
    SEED("tlabel,text,group\nx,one,1\ny,\"two, and three\",2\nx,four,1\nx,five,2\n"),
    SEED("tone,x\ntwo,y\nthree,x\n"),
};

static size_t fuzz_seeds(const fuzz_seed **out)
{
    *out = seeds;
    return AN_COUNT(seeds);
}

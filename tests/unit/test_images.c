/* test_images.c: idx files, image files and their folders, the built-in shapes, and the fit of an image to a size. */
#define _DEFAULT_SOURCE
#include "lib/test.h"
#include "io/data/image_files.h"
#include "io/data/image_fit.h"
#include "io/formats/idx.h"
#include "platform/platform.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- idx */

static void sentence_is(an_status status, const an_err *err, const char *part)
{
    assert_int_not_equal(status, AN_OK);
    if (!strstr(err->text, part)) fail_msg("'%s' lacks '%s'", err->text, part);
}

static void idx_sizes_are_checked_against_the_file(void **state)
{
    (void)state;
    static const struct {
        const char *data;
        size_t n;
        const char *sentence; /* NULL: it is taken */
    } of[] = {
        {"\0\0\x08\x01\0\0\0\x02"
         "ab",
         10, NULL},
        {"\0\0\x08\x02\0\0\0\x02\0\0\0\x01"
         "ab",
         14, NULL},
        {"", 0, "no idx file"},
        {"\0\0\x0d\x01\0\0\0\x02"
         "ab",
         10, "no idx file"},
        {"\0\0\x08\0", 4, "no idx file"},
        {"\0\0\x08\x09", 4, "no idx file"},
        {"\0\0\x08\x03\0\0\0\x02", 8, "ends in its header"},
        {"\0\0\x08\x01\0\0\0\x03"
         "ab",
         10, "2 bytes behind the header, where its sizes make 3"},
        {"\0\0\x08\x01\0\0\0\x01"
         "ab",
         10, "2 bytes behind the header, where its sizes make 1"},
        {"\0\0\x08\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 16, "at most 8 GiB"},
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        an_err err = {0};
        an_idx x;
        an_status status = an_idx_parse(&err, "x", of[i].data, of[i].n, &x);
        if (of[i].sentence)
            sentence_is(status, &err, of[i].sentence);
        else
            assert_int_equal(status, AN_OK);
    }
}

/* ---- image files: 2 x 2 pixels red, green; blue, white as a PNG, made by Python's zlib */

static const unsigned char four_pixels[] = {
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44, 0x52, 0x00, 0x00, 0x00,
    0x02, 0x00, 0x00, 0x00, 0x02, 0x08, 0x02, 0x00, 0x00, 0x00, 0xfd, 0xd4, 0x9a, 0x73, 0x00, 0x00, 0x00, 0x12, 0x49,
    0x44, 0x41, 0x54, 0x78, 0x9c, 0x63, 0xf8, 0xcf, 0xc0, 0xc0, 0x00, 0xc2, 0x0c, 0xff, 0x81, 0x00, 0x00, 0x1f, 0xee,
    0x05, 0xfb, 0x0b, 0xd9, 0x68, 0x8b, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82,
};

static bool can_read(const an_err *err)
{
    return !strstr(err->text, "is not installed");
}

static void a_png_is_read_in_colours_and_in_grey(void **state)
{
    (void)state;
    an_err err = {0};
    an_image x;
    an_status status = an_image_decode(&err, "x.png", four_pixels, sizeof four_pixels, 3, &x);
    if (!can_read(&err)) test_skip("%s", err.text);
    if (status != AN_OK) fail_msg("%s", err.text);
    static const uint8_t expected[] = {255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255};
    assert_int_equal(x.width, 2);
    assert_int_equal(x.height, 2);
    assert_memory_equal(x.data, expected, sizeof expected);
    an_image_free(&x);
    assert_int_equal(an_image_decode(&err, "x.png", four_pixels, sizeof four_pixels, 1, &x), AN_OK);
    assert_int_equal(x.data[3], 255);
    assert_in_range(x.data[0], 1, x.data[1]); /* red is darker than green */
    an_image_free(&x);
    for (size_t n = 0; n < sizeof four_pixels - 12; n++) { /* without the end of the pixels */
        an_err why = {0};
        if (an_image_decode(&why, "x.png", four_pixels, n, 3, &x) == AN_OK) fail_msg("%zu bytes were taken", n);
        assert_non_null(strstr(why.text, "x.png"));
        assert_null(x.memory);
    }
}

/* The first two pixels of images made by Python's zlib and Pillow, which has the same numbers (but of grey of 16 bits). */
static const struct {
    const char *what;
    size_t bytes;
    const char *data;
    uint8_t colours[6], grey[2];
} decoded[] = {
    {"a gamma of 1 and a half transparent pixel",
     90,
     "\211\120\116\107\015\012\032\012\000\000\000\015\111\110\104\122\000\000\000\002\000\000\000\001\010\006\000"
     "\000\000\364\042\177\212\000\000\000\004\147\101\115\101\000\001\206\240\061\350\226\137\000\000\000\021\111"
     "\104\101\124\170\332\143\070\241\041\362\137\156\301\235\006\000\021\144\004\036\317\236\324\035\000\000\000"
     "\000\111\105\116\104\256\102\140\202",
     {200, 40, 20, 30, 160, 220},
     {86, 128}},
    {"a palette with a transparent colour",
     99,
     "\211\120\116\107\015\012\032\012\000\000\000\015\111\110\104\122\000\000\000\002\000\000\000\001\010\003\000"
     "\000\000\303\374\217\270\000\000\000\006\120\114\124\105\310\050\024\036\240\334\101\314\055\167\000\000\000"
     "\001\164\122\116\123\000\100\346\330\146\000\000\000\013\111\104\101\124\170\332\143\140\144\000\000\000\005"
     "\000\002\102\302\104\237\000\000\000\000\111\105\116\104\256\102\140\202",
     {30, 160, 220, 200, 40, 20},
     {128, 86}},
    {"16 bits a colour",
     78,
     "\211\120\116\107\015\012\032\012\000\000\000\015\111\110\104\122\000\000\000\002\000\000\000\001\020\002\000"
     "\000\000\053\320\064\236\000\000\000\025\111\104\101\124\170\332\143\070\161\102\103\103\104\104\116\156\301"
     "\202\073\167\000\036\147\005\075\016\341\115\133\000\000\000\000\111\105\116\104\256\102\140\202",
     {200, 40, 20, 30, 160, 220},
     {86, 128}},
    {"16 bits of grey",
     70,
     "\211\120\116\107\015\012\032\012\000\000\000\015\111\110\104\122\000\000\000\002\000\000\000\001\020\000\000"
     "\000\000\201\331\374\025\000\000\000\015\111\104\101\124\170\332\143\060\062\072\171\022\000\003\276\001\367"
     "\161\335\365\034\000\000\000\000\111\105\116\104\256\102\140\202",
     {50, 50, 50, 201, 201, 201},
     {50, 201}},
    {"an animation of two images",
     152,
     "\122\111\106\106\220\000\000\000\127\105\102\120\126\120\070\130\012\000\000\000\002\000\000\000\001\000\000"
     "\000\000\000\101\116\111\115\006\000\000\000\000\000\000\000\000\000\101\116\115\106\056\000\000\000\000\000"
     "\000\000\000\000\001\000\000\000\000\000\000\000\000\002\126\120\070\114\025\000\000\000\057\001\000\000\000"
     "\017\160\104\320\173\250\036\207\173\376\243\005\031\321\377\000\000\101\116\115\106\056\000\000\000\000\000"
     "\000\000\000\000\001\000\000\000\000\000\000\000\000\000\126\120\070\114\026\000\000\000\057\001\000\000\000"
     "\017\160\304\353\337\250\036\147\175\376\243\005\025\210\350\177\000",
     {200, 40, 20, 30, 160, 220},
     {86, 128}},
    {"alpha",
     42,
     "\122\111\106\106\042\000\000\000\127\105\102\120\126\120\070\114\026\000\000\000\057\001\000\000\020\017\160"
     "\024\274\133\041\237\002\171\000\103\032\025\210\350\177\000",
     {200, 40, 20, 30, 160, 220},
     {86, 128}},
    {"ink",
     177,
     "\377\330\377\356\000\016\101\144\157\142\145\000\144\000\000\000\000\000\377\333\000\103\000\002\001\001\001"
     "\001\001\002\001\001\001\002\002\002\002\002\004\003\002\002\002\002\005\004\004\003\004\006\005\006\006\006"
     "\005\006\006\006\007\011\010\006\007\011\007\006\006\010\013\010\011\012\012\012\012\012\006\010\013\014\013"
     "\012\014\011\012\012\012\377\300\000\024\010\000\010\000\010\004\103\021\000\115\021\000\131\021\000\113\021"
     "\000\377\304\000\024\000\001\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\011\377\304\000\024"
     "\020\001\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\377\332\000\016\004\103\000\115\000"
     "\131\000\113\000\000\077\000\110\004\370\117\077\217\377\331",
     {200, 40, 20, 200, 40, 20},
     {86, 86}},
};

static void transparency_gamma_ink_depth_and_animation_give_the_numbers_of_pillow(void **state)
{
    (void)state;
    int not_here = 0;
    for (size_t i = 0; i < sizeof decoded / sizeof *decoded; i++)
        for (int channels = 1; channels <= 3; channels += 2) {
            an_err err = {0};
            an_image x;
            const an_status status = an_image_decode(&err, "x", decoded[i].data, decoded[i].bytes, channels, &x);
            not_here += !can_read(&err);
            if (!can_read(&err)) continue;
            if (status != AN_OK) fail_msg("%s: %s", decoded[i].what, err.text);
            assert_int_equal(x.channels, channels);
            const uint8_t *want = channels == 1 ? decoded[i].grey : decoded[i].colours;
            for (int k = 0; k < 2 * channels; k++)
                if (x.data[k] != want[k])
                    fail_msg("%s: number %d of %d channels is %d, not %d", decoded[i].what, k, channels, x.data[k],
                             want[k]);
            an_image_free(&x);
            for (size_t n = 0; n < decoded[i].bytes; n++) /* cut: refused, or the pixels that were whole */
                if (an_image_decode(&err, "x", decoded[i].data, n, channels, &x) == AN_OK) an_image_free(&x);
        }
    if (not_here) test_skip("%d images are of libraries that are not installed", not_here);
}

static void a_bomb_is_refused_by_its_header(void **state)
{
    (void)state;
    unsigned char bomb[sizeof four_pixels];
    an_err err = {0};
    an_image x;
    memcpy(bomb, four_pixels, sizeof bomb);
    static const unsigned char header[] = {0x00, 0x01, 0x86, 0xa0, 0x00, 0x01, 0x86, 0xa0, 0x08,
                                           0x02, 0x00, 0x00, 0x00, 0x27, 0x30, 0x9c, 0x9f};
    memcpy(bomb + 16, header, sizeof header); /* 100,000 x 100,000 */
    an_status status = an_image_decode(&err, "x.png", bomb, sizeof bomb, 3, &x);
    if (!can_read(&err)) test_skip("%s", err.text);
    sentence_is(status, &err, "100000 x 100000 pixels; at most 67108864 are read");
}

/* ---- fit */

static void an_image_of_the_right_size_is_not_changed(void **state)
{
    (void)state;
    uint8_t from[7 * 5 * 3], to[7 * 5 * 3], back[7 * 5 * 3];
    for (size_t i = 0; i < sizeof from; i++) from[i] = (uint8_t)(i * 37);
    const an_image x = {from, 7, 5, 3, NULL};
    an_image_part p = an_image_middle(&x, 7, 5);
    assert_int_equal(an_image_fit(NULL, &x, &p, 7, 5, to), AN_OK);
    assert_memory_equal(from, to, sizeof from);
    p.flip = true;
    assert_int_equal(an_image_fit(NULL, &x, &p, 7, 5, to), AN_OK);
    const an_image flipped = {to, 7, 5, 3, NULL};
    assert_int_equal(an_image_fit(NULL, &flipped, &p, 7, 5, back), AN_OK);
    assert_memory_equal(from, back, sizeof from);
    p.flip = false;
    p.top = 2 << 16;
    assert_int_equal(an_image_fit(NULL, &x, &p, 7, 5, to), AN_OK);
    assert_memory_equal(to, from + 2 * 15, 5 * 15);
    for (size_t i = 5 * 15; i < sizeof to; i++) assert_int_equal(to[i], 0);
}

static void a_part_beside_the_image_is_its_pixels_and_black(void **state)
{
    (void)state;
    enum { H = 7, W = 9, MOST = 3 };
    for (int C = 1; C <= MOST; C++)
        for (int left = -W; left <= W; left++)
            for (int flip = 0; flip < 2; flip++) {
                uint8_t from[H * W * MOST], to[H * W * MOST];
                for (size_t i = 0; i < sizeof from; i++) from[i] = (uint8_t)(1 + i * 37 % 255);
                const an_image x = {from, H, W, C, NULL};
                an_image_part p = an_image_middle(&x, H, W);
                p.flip = flip;
                p.left = left * 65536;
                assert_int_equal(an_image_fit(NULL, &x, &p, H, W, to), AN_OK);
                for (int i = 0; i < H * W * C; i++) {
                    const int row = i / (W * C), at = i / C % W, pixel = (flip ? W - 1 - at : at) + left;
                    const int want = pixel >= 0 && pixel < W ? from[(row * W + pixel) * C + i % C] : 0;
                    assert_int_equal(to[i], want);
                }
            }
}

static void a_flat_image_stays_flat_at_every_size(void **state)
{
    (void)state;
    for (int size = 1; size < 40; size += 3) {
        uint8_t from[33 * 21], to[40 * 40];
        memset(from, 200, sizeof from);
        const an_image x = {from, 33, 21, 1, NULL};
        const an_image_part p = an_image_middle(&x, size, size);
        assert_int_equal(p.height, 21 << 16);
        assert_int_equal(an_image_fit(NULL, &x, &p, size, size, to), AN_OK);
        for (int i = 0; i < size * size; i++) assert_int_equal(to[i], 200);
    }
}

/* ---- sets */

static void the_built_in_shapes_are_split_and_named(void **state)
{
    (void)state;
    an_err err = {0};
    an_image_set *s;
    an_image x;
    int height, width, seen[4] = {0};
    assert_int_equal(an_image_set_open(&err, &(an_image_set_options){.source = "shapes"}, &s), AN_OK);
    assert_int_equal(an_image_set_count(s, AN_TRAIN), 1800);
    assert_int_equal(an_image_set_count(s, AN_VAL), 200);
    assert_true(an_image_set_size(s, &height, &width) && height == 28 && width == 28);
    assert_string_equal(an_image_set_classes(s)->name[3], "cross");
    for (int64_t i = 0; i < 200; i++) seen[an_image_set_label(s, AN_VAL, i)]++;
    for (int i = 0; i < 4; i++) assert_int_equal(seen[i], 50);
    assert_int_equal(an_image_set_read(&err, s, AN_VAL, 199, &x), AN_OK);
    assert_null(x.memory);
    an_image_set_close(s);
}

static void folders_are_classes_and_each_tenth_file_is_for_validation(void **state)
{
    (void)state;
    char path[512];
    an_err err = {0};
    an_image_set *s;
    const char *root = test_path("pictures");
    for (int i = 0; i < 24; i++) {
        snprintf(path, sizeof path, "%s/%s", root, i % 2 ? "owl" : "ant");
        assert_int_equal(an_make_dirs(&err, path, 0700), AN_OK);
        snprintf(path, sizeof path, "%s/%s/%02d.PNG", root, i % 2 ? "owl" : "ant", i);
        test_write_file(path, four_pixels, sizeof four_pixels);
    }
    if (an_image_set_open(&err, &(an_image_set_options){.source = root}, &s) != AN_OK) fail_msg("%s", err.text);
    assert_int_equal(an_image_set_count(s, AN_TRAIN), 22);
    assert_int_equal(an_image_set_count(s, AN_VAL), 2);
    assert_string_equal(an_image_set_classes(s)->name[0], "ant");
    assert_int_equal(an_image_set_label(s, AN_VAL, 1), 1);
    assert_int_equal(an_image_set_channels(s), 3);
    an_image_set_close(s);
    assert_int_equal(an_image_set_open(&err, &(an_image_set_options){.source = test_path("none")}, &s), AN_E_IO);
}

static void unlabelled_images_are_those_of_the_folder_and_of_the_folders_in_it(void **state)
{
    (void)state;
    static const struct {
        const char *folder, *more; /* a folder that is made as well */
        const char *file[5];       /* in the order wanted */
        int32_t label[5];
        int64_t with_class;
    } of[] = {{"mixed", "deep/er", {"a.png", "m.png", "z.png", "m/2.png", "thumbs/1.png"}, {-1, -1, -1, 1, 2}, 2},
              {"mixed_apart",
               "train",
               {"b.png", "val/a.png", "val/z.png", "val/m/2.png", "val/n/1.png"},
               {-1, -1, -1, 0, 1},
               2}};
    char root[512], path[1024];
    an_err err = {0};
    an_image_set *s;
    for (size_t k = 0; k < AN_COUNT(of); k++) {
        const char *const *file = of[k].file;
        snprintf(root, sizeof root, "%s", test_path(of[k].folder));
        for (size_t i = AN_COUNT(of[k].file); i-- > 0;) {
            snprintf(path, sizeof path, "%s/%s", root, file[i]);
            *strrchr(path, '/') = 0;
            assert_int_equal(an_make_dirs(&err, path, 0700), AN_OK);
            snprintf(path, sizeof path, "%s/%s", root, file[i]);
            test_write_file(path, four_pixels, sizeof four_pixels);
        }
        snprintf(path, sizeof path, "%s/%s", root, of[k].more);
        assert_int_equal(an_make_dirs(&err, path, 0700), AN_OK);
        an_image_set_options o = {.source = root, .whole = true, .unlabelled = true};
        if (an_image_set_open(&err, &o, &s) != AN_OK) fail_msg("%s", err.text);
        assert_int_equal(an_image_set_count(s, AN_TRAIN), 0);
        assert_int_equal(an_image_set_count(s, AN_VAL), AN_COUNT(of[k].file));
        for (size_t i = 0; i < AN_COUNT(of[k].file); i++) {
            snprintf(path, sizeof path, "%s/%s", root, file[i]);
            assert_string_equal(an_image_set_path(s, AN_VAL, (int64_t)i), path);
            assert_int_equal(an_image_set_label(s, AN_VAL, (int64_t)i), of[k].label[i]);
        }
        an_image_set_close(s);
        o.unlabelled = false; /* what is measured against labels is what has one */
        if (an_image_set_open(&err, &o, &s) != AN_OK) fail_msg("%s", err.text);
        assert_int_equal(an_image_set_count(s, AN_VAL), of[k].with_class);
        an_image_set_close(s);
    }
}

/* A folder without classes has no labels to evaluate by. */
static void images_of_no_class_are_not_evaluated(void **state)
{
    (void)state;
    char path[512];
    an_err err = {0};
    an_image_set *s;
    assert_int_equal(an_make_dirs(&err, test_path("flat"), 0700), AN_OK);
    snprintf(path, sizeof path, "%s/0.png", test_path("flat"));
    test_write_file(path, four_pixels, sizeof four_pixels);
    an_image_set_options o = {.source = test_path("flat"), .whole = true};
    sentence_is(an_image_set_open(&err, &o, &s), &err, "nor folders with .jpg, .png or .webp files");
    o.unlabelled = true;
    if (an_image_set_open(&err, &o, &s) != AN_OK) fail_msg("%s", err.text);
    assert_int_equal(an_image_set_count(s, AN_VAL), 1);
    an_image_set_close(s);
}

static void a_folder_of_no_class_is_named_with_the_remedy(void **state)
{
    (void)state;
    static const struct {
        const char *folder, *file, *more, *sentence;
    } of[] = {
        {"empty", "ant/0.png", "owl",
         "empty/owl: no .jpg, .png or .webp file is in the folder, so there is nothing to learn this class of; "
         "put images there, or remove the folder"},
        {"tested", "train/ant/0.png", "test/ant", "it has a folder train, but none named val"},
        {"unseen", "val/ant/0.png", "train/ant",
         "unseen/train/ant: no .jpg, .png or .webp file is in the folder, so there is nothing to learn this class of; "
         "put images there, or remove the class from train and val"},
        {"line", "ant/0.png", "o\nwl", "line/o?wl: the label has a control character in it"},
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        char root[512], path[1024];
        an_err err = {0};
        an_image_set *s;
        snprintf(root, sizeof root, "%s", test_path(of[i].folder));
        snprintf(path, sizeof path, "%s/%s", root, of[i].more);
        assert_int_equal(an_make_dirs(&err, path, 0700), AN_OK);
        snprintf(path, sizeof path, "%s/%s", root, of[i].file);
        *strrchr(path, '/') = 0;
        assert_int_equal(an_make_dirs(&err, path, 0700), AN_OK);
        snprintf(path, sizeof path, "%s/%s", root, of[i].file);
        test_write_file(path, four_pixels, sizeof four_pixels);
        sentence_is(an_image_set_open(&err, &(an_image_set_options){.source = root}, &s), &err, of[i].sentence);
    }
}

/* Reads the first training image of `s`, of a folder whose only file for it is `path`. */
static void read_says(const an_image_set *s, const char *path, const char *part)
{
    an_err err = {0};
    an_image x;
    sentence_is(an_image_set_read(&err, s, AN_TRAIN, 0, &x), &err, part);
    assert_non_null(strstr(err.text, path));
    assert_null(x.memory);
}

static void an_image_file_that_changed_under_the_reader_is_named(void **state)
{
    (void)state;
    char folder[512], path[600];
    an_err err = {0};
    an_image_set *s;
    an_image x;
    struct stat was;
    snprintf(folder, sizeof folder, "%s/newt", test_path("changed"));
    assert_int_equal(an_make_dirs(&err, folder, 0700), AN_OK);
    snprintf(path, sizeof path, "%s/0.png", folder);
    test_write_file(path, four_pixels, sizeof four_pixels);
    if (an_image_set_open(&err, &(an_image_set_options){.source = test_path("changed")}, &s) != AN_OK)
        fail_msg("%s", err.text);
    assert_int_equal(stat(path, &was), 0);

    test_write_file(path, four_pixels, sizeof four_pixels / 2); /* cut: it cannot be decoded either */
    read_says(s, path, "the file changed since the data were opened");
    test_write_file(path, four_pixels, sizeof four_pixels); /* as long, later, and an image */
    const struct timespec later[2] = {{.tv_sec = was.st_mtime + 5}, {.tv_sec = was.st_mtime + 5}};
    assert_int_equal(utimensat(AT_FDCWD, path, later, 0), 0);
    read_says(s, path, "the file changed since the data were opened");
    const struct timespec same[2] = {{.tv_sec = was.st_mtime}, {.tv_sec = was.st_mtime}};
    assert_int_equal(utimensat(AT_FDCWD, path, same, 0), 0);
    an_status status = an_image_set_read(&err, s, AN_TRAIN, 0, &x);
    if (status != AN_OK && !strstr(err.text, "libpng")) fail_msg("put back, it is not read: %s", err.text);
    an_image_free(&x);
    assert_int_equal(unlink(path), 0);
    read_says(s, path, "the file is gone since the data were opened");
    an_image_set_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idx_sizes_are_checked_against_the_file),
        cmocka_unit_test(a_png_is_read_in_colours_and_in_grey),
        cmocka_unit_test(transparency_gamma_ink_depth_and_animation_give_the_numbers_of_pillow),
        cmocka_unit_test(a_bomb_is_refused_by_its_header),
        cmocka_unit_test(an_image_of_the_right_size_is_not_changed),
        cmocka_unit_test(a_part_beside_the_image_is_its_pixels_and_black),
        cmocka_unit_test(a_flat_image_stays_flat_at_every_size),
        cmocka_unit_test(the_built_in_shapes_are_split_and_named),
        cmocka_unit_test(folders_are_classes_and_each_tenth_file_is_for_validation),
        cmocka_unit_test(unlabelled_images_are_those_of_the_folder_and_of_the_folders_in_it),
        cmocka_unit_test(images_of_no_class_are_not_evaluated),
        cmocka_unit_test(a_folder_of_no_class_is_named_with_the_remedy),
        cmocka_unit_test(an_image_file_that_changed_under_the_reader_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

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
        cmocka_unit_test(a_bomb_is_refused_by_its_header),
        cmocka_unit_test(an_image_of_the_right_size_is_not_changed),
        cmocka_unit_test(a_part_beside_the_image_is_its_pixels_and_black),
        cmocka_unit_test(a_flat_image_stays_flat_at_every_size),
        cmocka_unit_test(the_built_in_shapes_are_split_and_named),
        cmocka_unit_test(folders_are_classes_and_each_tenth_file_is_for_validation),
        cmocka_unit_test(an_image_file_that_changed_under_the_reader_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_tensorboard.c: a file of events, read back frame by frame; the checksum against its published value. */
#include "lib/test.h"

#include "platform/platform.h"
#include "report/tensorboard.h"
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint32_t u32(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* CRC-32C by its table of four bits: not the way of the code under test. */
static uint32_t crc32c(const unsigned char *p, size_t n)
{
    uint32_t table[16], crc = 0xFFFFFFFF;
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 4; bit++) c = c & 1 ? 0x82F63B78u ^ c >> 1 : c >> 1;
        table[i] = c;
    }
    while (n-- > 0) {
        crc ^= *p++;
        crc = table[crc & 15] ^ crc >> 4;
        crc = table[crc & 15] ^ crc >> 4;
    }
    return ~crc;
}

static uint32_t masked(const unsigned char *p, size_t n)
{
    const uint32_t crc = crc32c(p, n);
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

static void frames_and_their_checksums_are_those_of_the_format(void **state)
{
    (void)state;
    an_err err = {0};
    an_tensorboard t;
    char *data;
    size_t n, at = 0;
    int frames = 0;
    assert_int_equal(crc32c((const unsigned char *)"123456789", 9), 0xE3069283); /* RFC 3720's check value */
    assert_int_equal(an_tensorboard_open(&err, test_path(""), &t), AN_OK);
    for (int64_t step = 0; step < 300; step += 150)
        assert_int_equal(
            an_tensorboard_add(&err, &t, step, (an_scalar_value[]){{"loss", 2.5}, {"bad", (double)NAN}}, 2), AN_OK);
    an_tensorboard_close(&t);
    assert_int_equal(an_file_read(&err, t.path, 0, &data, &n), AN_OK);
    const unsigned char *p = (const unsigned char *)data;
    for (; at < n; frames++) {
        const size_t bytes = u32(p + at);
        assert_int_equal(u32(p + at + 4), 0);
        assert_int_equal(u32(p + at + 8), masked(p + at, 8));
        assert_int_equal(u32(p + at + 12 + bytes), masked(p + at + 12, bytes));
        assert_int_equal(p[at + 12], 9); /* wall_time, 8 bytes */
        if (frames == 0)
            assert_memory_equal(p + at + 21,
                                "\x1a\x0d"
                                "brain.Event:2",
                                15);
        if (frames == 2) { /* step 150, then Summary { Value { "loss", 2.5f } ... */
            assert_memory_equal(p + at + 21, "\x10\x96\x01\x2a", 4);
            assert_memory_equal(p + at + 26, "\x0a\x0b\x0a\x04loss\x15\x00\x00\x20\x40", 13);
        }
        at += 16 + bytes;
    }
    assert_int_equal(at, n);
    assert_int_equal(frames, 3);
    free(data);
}

static void many_and_long_values_stay_in_bounds(void **state)
{
    (void)state;
    an_err err = {0};
    an_tensorboard t;
    an_scalar_value v[64];
    char tag[300];
    memset(tag, 'x', sizeof tag - 1);
    tag[sizeof tag - 1] = 0;
    for (size_t i = 0; i < AN_COUNT(v); i++) v[i] = (an_scalar_value){tag, 1e300};
    assert_int_equal(an_tensorboard_open(&err, test_path(""), &t), AN_OK);
    assert_int_equal(an_tensorboard_add(&err, &t, INT64_MAX, v, AN_COUNT(v)), AN_OK);
    an_tensorboard_close(&t);
    assert_int_equal(an_tensorboard_add(&err, &t, 1, v, 1), AN_E_IO);
    assert_int_equal(an_tensorboard_open(&err, "/nonexistent/folder", &t), AN_E_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_and_their_checksums_are_those_of_the_format),
        cmocka_unit_test(many_and_long_values_stay_in_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

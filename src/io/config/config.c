/* config.c: one setting as text to its field, with range and choices checked; and a struct of settings as JSON or
 * YAML. */
#include "io/config/config.h"
#include "io/formats/json.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *long_name;
    an_dtype dtype;
} dtypes[] = {
    {"f32", "float32", AN_F32}, {"bf16", "bfloat16", AN_BF16}, {"f16", "float16", AN_F16}, {"f64", "float64", AN_F64}};

static void *place_of(const an_config_field *f, void *values)
{
    return (char *)values + f->offset;
}
static const void *value_of(const an_config_field *f, const void *values)
{
    return (const char *)values + f->offset;
}

/* ---- reading a value. Each gives false when the text is not of the type. */

static bool number_text(const char *s, const char *allowed)
{
    return *s && s[strspn(s, allowed)] == 0;
}

static bool parse_int(const char *s, int64_t *out)
{
    char *end;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    *out = v;
    return number_text(s, "+-0123456789") && *end == 0 && end != s && errno == 0;
}

static bool parse_float(const char *s, double *out)
{
    char *end;
    *out = strtod(s, &end); /* no hexadecimal, no inf, no nan */
    return number_text(s, "+-.eE0123456789") && *end == 0 && end != s && isfinite(*out);
}

static bool is_word(const char *s, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(s, words[i]) == 0) return true;
    return false;
}

static bool parse_bool(const char *s, bool *out)
{
    static const char *const yes[] = {"true", "True", "yes", "on", "1"}, *const no[] = {"false", "False", "no", "off",
                                                                                        "0"};
    *out = is_word(s, yes, AN_COUNT(yes));
    return *out || is_word(s, no, AN_COUNT(no));
}

static bool parse_dtype(const char *s, an_dtype *out)
{
    for (size_t i = 0; i < AN_COUNT(dtypes); i++)
        if (strcmp(s, dtypes[i].name) == 0 || strcmp(s, dtypes[i].long_name) == 0) return *out = dtypes[i].dtype, true;
    return false;
}

static bool in_choices(const char *choices, const char *s)
{
    size_t n = strlen(s);
    if (strchr(s, '|')) return false;
    for (const char *p = choices; p; p = strchr(p, '|') ? strchr(p, '|') + 1 : NULL)
        if (strncmp(p, s, n) == 0 && (p[n] == '|' || p[n] == 0)) return true;
    return false;
}

/* ---- amounts of memory */

an_status an_bytes_parse(an_err *err, const char *what, const char *text, uint64_t *out)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = {{"B", 1},    {"KiB", 1024},  {"MiB", 1048576},        {"GiB", 1073741824},
                 {"K", 1024}, {"M", 1048576}, {"G", 1073741824},       {"kB", 1e3},
                 {"MB", 1e6}, {"GB", 1e9},    {"TiB", 1099511627776.0}};
    const char *unit = text + strspn(text, "0123456789.");
    char *end = NULL;
    double number = unit == text ? 0 : strtod(text, &end);
    if (end != unit) number = 0; /* 1.2.3GiB, 1e3GiB */
    unit += strspn(unit, " ");
    if (!*unit && number > 0) /* GiB to one reader, bytes to another */
        return an_fail(err, AN_E_USAGE, "%s=%.64s: of what? Write the unit too, as %s=%.32sGiB or %s=%.32sMiB", what,
                       text, what, text, what, text);
    for (size_t i = 0; i < AN_COUNT(units) && unit != text && number > 0; i++)
        if (strcmp(unit, units[i].name) == 0) {
            if (!(number * units[i].bytes < 0x1p63))
                return an_fail(err, AN_E_USAGE, "%s=%.64s: more than there is: 8EiB and above are no amount of memory",
                               what, text);
            *out = (uint64_t)(number * units[i].bytes);
            return AN_OK;
        }
    return an_fail(err, AN_E_USAGE, "%s=%.64s: an amount of memory is needed, as 8GiB or 512MiB", what, text);
}

/* A number of GiB, or an amount with its unit. */
static bool parse_gib(const char *s, double *out)
{
    uint64_t bytes;
    if (parse_float(s, out)) return true;
    if (an_bytes_parse(NULL, "", s, &bytes) != AN_OK) return false;
    return *out = (double)bytes / 1073741824.0, true;
}

/* ---- setting */

/* "configs/a.yaml:12: " or nothing. */
static const char *colon(const char *origin)
{
    return *origin ? ": " : "";
}

static an_status refuse(an_err *err, const char *origin, const an_config_field *f, const char *value,
                        const char *wanted)
{
    char quoted[AN_QUOTED_BYTES];
    return an_fail(err, AN_E_USAGE, "%s%s%s=%s: %s (%s)", origin, colon(origin), f->name, an_quoted(value, quoted),
                   wanted, f->doc);
}

static an_status refuse_range(an_err *err, const char *origin, const an_config_field *f, const char *value)
{
    return an_fail(err, AN_E_USAGE, "%s%s%s=%s: allowed is %.15g to %.15g (%s)", origin, colon(origin), f->name, value,
                   f->min, f->max, f->doc);
}

static bool in_range(const an_config_field *f, double v)
{
    return (f->min == 0 && f->max == 0) || (v >= f->min && v <= f->max);
}

static an_status set_field(an_err *err, const an_config_field *f, void *values, const char *origin, const char *value)
{
    void *place = place_of(f, values);
    int64_t i;
    double d;
    bool b;
    an_dtype dtype;
    switch (f->type) {
    case AN_CONFIG_INT:
        if (!parse_int(value, &i)) return refuse(err, origin, f, value, "a whole number is needed");
        if (!in_range(f, (double)i)) return refuse_range(err, origin, f, value);
        memcpy(place, &i, sizeof i);
        return AN_OK;
    case AN_CONFIG_FLOAT:
        if (!parse_float(value, &d)) return refuse(err, origin, f, value, "a number is needed");
        if (!in_range(f, d)) return refuse_range(err, origin, f, value);
        memcpy(place, &d, sizeof d);
        return AN_OK;
    case AN_CONFIG_GIB:
        if (!parse_gib(value, &d))
            return refuse(err, origin, f, value, "an amount of memory is needed, as 8GiB or 512MiB");
        if (!in_range(f, d)) return refuse_range(err, origin, f, value);
        memcpy(place, &d, sizeof d);
        return AN_OK;
    case AN_CONFIG_BOOL:
        if (!parse_bool(value, &b)) return refuse(err, origin, f, value, "true or false is needed");
        memcpy(place, &b, sizeof b);
        return AN_OK;
    case AN_CONFIG_DTYPE:
        if (!parse_dtype(value, &dtype))
            return refuse(err, origin, f, value, "float32, bfloat16, float16 or float64 is needed");
        memcpy(place, &dtype, sizeof dtype);
        return AN_OK;
    case AN_CONFIG_TEXT:
        if (f->choices && !in_choices(f->choices, value)) return refuse(err, origin, f, value, f->choices);
        if (strlen(value) >= AN_CONFIG_TEXT_BYTES)
            return refuse(err, origin, f, value, "at most 511 bytes are possible");
        memcpy(place, value, strlen(value) + 1);
        return AN_OK;
    }
    return an_fail(err, AN_E_INTERNAL, "setting %s has no type", f->name);
}

static an_status unknown_key(an_err *err, const an_config *c, const char *origin, const char *key)
{
    char quoted[AN_QUOTED_BYTES];
    const char **names = malloc((c->n + 1) * sizeof *names);
    if (!names) return an_fail_nomem(err, key, c->n * sizeof *names);
    for (size_t i = 0; i < c->n; i++) names[i] = c->fields[i].name;
    const char *near = an_nearest(key, names, c->n);
    free(names);
    return an_fail(err, AN_E_USAGE, "%s%sunknown setting %s%s%s%s", origin, colon(origin), an_quoted(key, quoted),
                   near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

const an_config_field *an_config_find(const an_config *c, const char *key)
{
    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->fields[i].name, key) == 0) return &c->fields[i];
    return NULL;
}

an_status an_config_set(an_err *err, const an_config *c, void *values, const char *origin, const char *key,
                        const char *value)
{
    const an_config_field *f = an_config_find(c, key);
    if (!f && c->partial) return AN_OK;
    return f ? set_field(err, f, values, origin, value) : unknown_key(err, c, origin, key);
}

an_status an_config_defaults(an_err *err, const an_config *c, void *values)
{
    for (size_t i = 0; i < c->n; i++) AN_TRY(set_field(err, &c->fields[i], values, "default", c->fields[i].initial));
    return AN_OK;
}

an_status an_config_argument(an_err *err, const an_config *c, void *values, const char *argument)
{
    const char *text = strncmp(argument, "--", 2) == 0 ? argument + 2 : argument, *equals = strchr(text, '=');
    char key[128], quoted[AN_QUOTED_BYTES];
    size_t n = equals ? (size_t)(equals - text) : strlen(text);
    if (!equals || n == 0)
        return an_fail(err, AN_E_USAGE, "%s is not a setting: write key=value", an_quoted(argument, quoted));
    if (n >= sizeof key) return unknown_key(err, c, "", text);
    memcpy(key, text, n);
    key[n] = 0;
    return an_config_set(err, c, values, "", key, equals + 1);
}

/* ---- JSON */

/* The shortest of 15 or 17 digits that reads back as the same number. */
static void put_float(an_text *out, double v)
{
    char text[40];
    snprintf(text, sizeof text, "%.15g", v);
    if (strtod(text, NULL) != v) snprintf(text, sizeof text, "%.17g", v);
    if (strcmp(text, "-0") == 0) snprintf(text, sizeof text, "-0.0"); /* JSON's -0 is an integer, which has no sign */
    an_text_puts(out, text);
}

size_t an_config_value_bytes(const an_config_field *f)
{
    static const size_t bytes[] = {[AN_CONFIG_INT] = sizeof(int64_t),       [AN_CONFIG_FLOAT] = sizeof(double),
                                   [AN_CONFIG_GIB] = sizeof(double),        [AN_CONFIG_BOOL] = sizeof(bool),
                                   [AN_CONFIG_TEXT] = AN_CONFIG_TEXT_BYTES, [AN_CONFIG_DTYPE] = sizeof(an_dtype)};
    return bytes[f->type];
}

void an_config_value_text(const an_config_field *f, const void *values, an_text *out)
{
    const void *place = value_of(f, values);
    int64_t i;
    double d;
    an_dtype dtype;
    switch (f->type) {
    case AN_CONFIG_INT:
        memcpy(&i, place, sizeof i);
        an_text_printf(out, "%" PRId64, i);
        break;
    case AN_CONFIG_FLOAT:
    case AN_CONFIG_GIB:
        memcpy(&d, place, sizeof d);
        put_float(out, d);
        break;
    case AN_CONFIG_BOOL: an_text_puts(out, *(const bool *)place ? "true" : "false"); break;
    case AN_CONFIG_TEXT: an_text_puts(out, place); break;
    case AN_CONFIG_DTYPE:
        memcpy(&dtype, place, sizeof dtype);
        for (size_t k = 0; k < AN_COUNT(dtypes); k++)
            if (dtypes[k].dtype == dtype) an_text_puts(out, dtypes[k].long_name); /* one name everywhere */
        break;
    }
}

an_status an_config_json(an_err *err, const an_config *c, const void *values, an_text *out)
{
    an_text value = {0};
    an_status status = AN_OK;
    an_text_puts(out, "{");
    for (size_t i = 0; i < c->n && status == AN_OK; i++) {
        const an_config_field *f = &c->fields[i];
        an_text_clear(&value);
        an_config_value_text(f, values, &value);
        const char *text = value.len ? value.data : "";
        an_text_printf(out, "%s\"%s\":", i ? "," : "", f->name);
        if (f->type != AN_CONFIG_TEXT && f->type != AN_CONFIG_DTYPE) {
            an_text_puts(out, text);
            continue;
        }
        status = an_json_check_text(err, f->name, text);
        if (status == AN_OK) an_json_put(out, text);
    }
    an_text_puts(out, "}");
    if (status == AN_OK && (out->failed || value.failed)) status = an_fail_nomem(err, "settings as JSON", out->len);
    an_text_free(&value);
    return status;
}

static an_status set_json(an_err *err, const an_config *c, void *values, const char *where, const char *key,
                          const json_t *value)
{
    char number[40];
    const char *text = number;
    if (json_is_string(value))
        text = json_string_value(value);
    else if (json_is_integer(value))
        snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        snprintf(number, sizeof number, "%.17g", json_real_value(value));
    else if (json_is_boolean(value))
        text = json_is_true(value) ? "true" : "false";
    else
        return an_fail(err, AN_E_USAGE, "%s: setting \"%.64s\" is not a text, a number, true or false", where, key);
    return an_config_set(err, c, values, where, key, text);
}

an_status an_config_from_json(an_err *err, const an_config *c, void *values, const char *where, const char *json,
                              size_t n)
{
    json_t *root, *value;
    const char *key;
    AN_TRY(an_json_parse(err, where, 0, json, n, &root));
    an_status status = json_is_object(root) ? AN_OK : an_fail(err, AN_E_USAGE, "%s: settings are an object", where);
    json_object_foreach(root, key, value) if (status == AN_OK) status = set_json(err, c, values, where, key, value);
    json_decref(root);
    return status;
}

/* ---- help */

void an_config_help(const an_config *c, an_text *out)
{
    size_t width = 0;
    for (size_t i = 0; i < c->n; i++)
        width = AN_MAX(width, strlen(c->fields[i].name) + strlen(c->fields[i].initial) + 1);
    for (size_t i = 0; i < c->n; i++) {
        const an_config_field *f = &c->fields[i];
        size_t used = strlen(f->name) + strlen(f->initial) + 1;
        an_text_printf(out, "  %s=%s%*s  %s", f->name, f->initial, (int)(width - used), "", f->doc);
        if (f->choices) an_text_printf(out, " (%s)", f->choices);
        if (f->min != 0 || f->max != 0) an_text_printf(out, " (%.15g to %.15g)", f->min, f->max);
        an_text_puts(out, "\n");
    }
}

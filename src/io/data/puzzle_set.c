/* puzzle_set.c: see puzzle_set.h: the files of a split, their checks, and reading an example. */
#define _DEFAULT_SOURCE
#include "base/map.h"
#include "base/text.h"
#include "io/data/puzzle_impl.h"
#include "io/formats/json.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { META_BYTES = 1 << 20, MAX_VOCABULARY = 1 << 24, MAX_LENGTH = 1 << 20 };

/* ---- numbers of a file */

static int64_t whole(const an_npy *a, int64_t i)
{
    const char *p = a->data;
    int32_t i32;
    int64_t i64;
    switch (a->dtype) {
    case AN_I32: return memcpy(&i32, p + 4 * i, sizeof i32), i32;
    case AN_I64: return memcpy(&i64, p + 8 * i, sizeof i64), i64;
    default: return (unsigned char)p[i];
    }
}

static an_status open_whole(an_err *err, const char *prefix, const char *name, int rank, an_npy *out)
{
    char path[AN_PUZZLE_PATH_BYTES];
    if (snprintf(path, sizeof path, "%s__%s.npy", prefix, name) >= (int)sizeof path)
        return an_fail(err, AN_E_USAGE, "%.200s...: the path is too long", prefix);
    AN_TRY(an_npy_open(err, path, out));
    if (out->dtype != AN_U8 && out->dtype != AN_I32 && out->dtype != AN_I64)
        return an_fail(err, AN_E_DTYPE, "%s: not whole numbers; uint8, int32 and int64 are read", path);
    if (out->rank != rank)
        return an_fail(err, AN_E_DATA, "%s: %d axes, where a data set of puzzles has %d", path, out->rank, rank);
    return AN_OK;
}

/* A file of `n` offsets (n < 0: as many as there are, one at least) that ascend from 0 to `end`. */
static an_status read_offsets(an_err *err, const char *prefix, const char *name, int64_t end, int32_t **out, int64_t *n)
{
    an_npy a = {.rank = 0};
    an_status status = open_whole(err, prefix, name, 1, &a);
    const int64_t count = status == AN_OK ? a.dim[0] : 0;
    if (status == AN_OK && (count < 1 || count > INT32_MAX))
        status = an_fail(err, AN_E_DATA, "%s__%s.npy: %lld offsets; one more than there are parts is needed", prefix,
                         name, (long long)count);
    if (status == AN_OK && (*out = malloc((size_t)count * sizeof **out)) == NULL)
        status = an_fail_nomem(err, prefix, (size_t)count * sizeof **out);
    int64_t before = 0;
    for (int64_t i = 0; status == AN_OK && i < count; i++) {
        const int64_t at = whole(&a, i);
        if (at < before || at > end || (i == 0 && at != 0) || (i == count - 1 && at != end))
            status = an_fail(err, AN_E_DATA,
                             "%s__%s.npy: offset %lld is %lld; they ascend from 0 to %lld, the number of parts", prefix,
                             name, (long long)i, (long long)at, (long long)end);
        else
            (*out)[i] = (int32_t)(before = at);
    }
    an_npy_close(&a);
    *n = count - 1;
    return status;
}

static an_status read_identifiers(an_err *err, const an_puzzle_meta *m, an_puzzle_part *p)
{
    an_npy a = {.rank = 0};
    an_status status = open_whole(err, p->path, "puzzle_identifiers", 1, &a);
    if (status == AN_OK && a.dim[0] != p->puzzles)
        status = an_fail(err, AN_E_DATA, "%s__puzzle_identifiers.npy: %lld of them for %lld puzzles", p->path,
                         (long long)a.dim[0], (long long)p->puzzles);
    if (status == AN_OK && (p->identifier = malloc((size_t)p->puzzles * sizeof *p->identifier + 1)) == NULL)
        status = an_fail_nomem(err, p->path, (size_t)p->puzzles * sizeof *p->identifier);
    for (int64_t i = 0; status == AN_OK && i < p->puzzles; i++) {
        const int64_t id = whole(&a, i);
        if (id < 0 || id >= m->num_puzzle_identifiers)
            status = an_fail(err, AN_E_DATA,
                             "%s__puzzle_identifiers.npy: puzzle %lld has identifier %lld; dataset.json knows %lld",
                             p->path, (long long)i, (long long)id, (long long)m->num_puzzle_identifiers);
        else
            p->identifier[i] = (int32_t)id;
    }
    an_npy_close(&a);
    return status;
}

/* ---- tokens */

static bool is_ignored(const an_puzzle_meta *m, int64_t label)
{
    return label == AN_PUZZLE_IGNORED || (m->ignores && label == m->ignore_label_id);
}

static an_status bad_token(an_err *err, const an_puzzle_meta *m, const an_puzzle_part *p, const char *name, int64_t at,
                           int64_t token)
{
    return an_fail(err, AN_E_DATA, "%s__%s.npy: row %lld, place %lld: %lld, where dataset.json says vocab_size %lld",
                   p->path, name, (long long)(at / m->seq_len), (long long)(at % m->seq_len), (long long)token,
                   (long long)m->vocab_size);
}

static an_status check_tokens(an_err *err, const an_puzzle_meta *m, const an_puzzle_part *p, const an_npy *a,
                              bool labels)
{
    const int64_t n = an_npy_elements(a);
    for (int64_t i = 0; i < n; i++) {
        const int64_t token = whole(a, i);
        if ((uint64_t)token >= (uint64_t)m->vocab_size && !(labels && is_ignored(m, token)))
            return bad_token(err, m, p, labels ? "labels" : "inputs", i, token);
    }
    return AN_OK;
}

/* ---- a set */

static an_status check_part(an_err *err, const an_puzzle_meta *m, an_puzzle_part *p)
{
    const an_npy *x = &p->inputs, *y = &p->labels;
    if (x->dim[1] != m->seq_len || y->dim[1] != m->seq_len)
        return an_fail(err, AN_E_DATA, "%s__%s.npy: rows of %lld, where dataset.json says seq_len %lld", p->path,
                       x->dim[1] != m->seq_len ? "inputs" : "labels",
                       (long long)(x->dim[1] != m->seq_len ? x->dim[1] : y->dim[1]), (long long)m->seq_len);
    if (x->dim[0] != y->dim[0] || x->dim[0] > INT32_MAX)
        return an_fail(err, AN_E_DATA, "%s__inputs.npy has %lld rows, __labels.npy %lld; each input has its labels",
                       p->path, (long long)x->dim[0], (long long)y->dim[0]);
    p->examples = x->dim[0];
    AN_TRY(check_tokens(err, m, p, x, false));
    AN_TRY(check_tokens(err, m, p, y, true));
    AN_TRY(read_offsets(err, p->path, "puzzle_indices", p->examples, &p->puzzle_at, &p->puzzles));
    AN_TRY(read_offsets(err, p->path, "group_indices", p->puzzles, &p->group_at, &p->groups));
    AN_TRY(read_identifiers(err, m, p));
    p->singles = p->puzzles == p->examples;
    for (int64_t i = 0; p->singles && i < p->puzzles; i++) p->singles = p->puzzle_at[i] == i;
    p->each = p->puzzles > 0 ? p->puzzle_at[1] : 0;
    for (int64_t i = 1; p->each > 0 && i < p->puzzles; i++)
        if (p->puzzle_at[i + 1] - p->puzzle_at[i] != p->each) p->each = 0;
    for (int64_t g = 0; g < p->groups; g++)
        if (p->group_at[g] == p->group_at[g + 1])
            return an_fail(err, AN_E_DATA, "%s__group_indices.npy: group %lld has no puzzle", p->path, (long long)g);
    return AN_OK;
}

static void close_part(an_puzzle_part *p)
{
    an_npy_close(&p->inputs);
    an_npy_close(&p->labels);
    free(p->puzzle_at);
    free(p->group_at);
    free(p->identifier);
}

static an_status open_part(an_err *err, an_puzzle_set *s, const an_puzzle_meta *m, const char *folder, const char *name)
{
    char quoted[AN_QUOTED_BYTES];
    if (!*name || strpbrk(name, "/\\") || strcmp(name, "..") == 0)
        return an_fail(err, AN_E_DATA, "%s/dataset.json: %s is no name of a set", folder, an_quoted(name, quoted));
    if (s->n_parts == AN_PUZZLE_MAX_PARTS)
        return an_fail(err, AN_E_USAGE, "%s: more than %d sets in all directories", folder, AN_PUZZLE_MAX_PARTS);
    if (!an_grow((void **)&s->part, s->n_parts, &s->cap, sizeof *s->part))
        return an_fail_nomem(err, folder, sizeof *s->part);
    an_puzzle_part *p = &s->part[s->n_parts++];
    *p = (an_puzzle_part){.first = s->examples};
    if (snprintf(p->path, sizeof p->path, "%s/%s", folder, name) >= (int)sizeof p->path)
        return an_fail(err, AN_E_USAGE, "%.200s...: the path is too long", folder);
    AN_TRY(open_whole(err, p->path, "inputs", 2, &p->inputs));
    AN_TRY(open_whole(err, p->path, "labels", 2, &p->labels));
    AN_TRY(check_part(err, m, p));
    s->examples += p->examples;
    s->groups += p->groups;
    return AN_OK;
}

/* ---- dataset.json */

static an_status take_whole(an_err *err, const char *where, const json_t *json, const char *key, int64_t least,
                            int64_t most, int64_t *out)
{
    const json_t *v = json_object_get(json, key);
    if (!json_is_integer(v)) return an_fail(err, AN_E_DATA, "%s: \"%s\" is missing or no whole number", where, key);
    *out = json_integer_value(v);
    if (*out >= least && *out <= most) return AN_OK;
    return an_fail(err, AN_E_DATA, "%s: \"%s\" is %lld; %lld to %lld are possible", where, key, (long long)*out,
                   (long long)least, (long long)most);
}

static an_status take_meta(an_err *err, const char *where, const json_t *json, an_puzzle_meta *m)
{
    AN_TRY(take_whole(err, where, json, "vocab_size", 1, MAX_VOCABULARY, &m->vocab_size));
    AN_TRY(take_whole(err, where, json, "seq_len", 1, MAX_LENGTH, &m->seq_len));
    AN_TRY(take_whole(err, where, json, "pad_id", 0, m->vocab_size - 1, &m->pad_id));
    AN_TRY(take_whole(err, where, json, "num_puzzle_identifiers", 1, INT32_MAX, &m->num_puzzle_identifiers));
    AN_TRY(
        take_whole(err, where, json, "blank_identifier_id", 0, m->num_puzzle_identifiers - 1, &m->blank_identifier_id));
    AN_TRY(take_whole(err, where, json, "total_groups", 0, INT32_MAX, &m->total_groups));
    if (json_object_get(json, "total_puzzles"))
        AN_TRY(take_whole(err, where, json, "total_puzzles", 0, INT32_MAX, &m->total_puzzles));
    const json_t *ignored = json_object_get(json, "ignore_label_id"),
                 *mean = json_object_get(json, "mean_puzzle_examples");
    m->ignores = ignored && !json_is_null(ignored);
    if (m->ignores) AN_TRY(take_whole(err, where, json, "ignore_label_id", INT32_MIN, INT32_MAX, &m->ignore_label_id));
    m->mean_puzzle_examples = json_number_value(mean);
    if (json_is_number(mean) && m->mean_puzzle_examples >= 0 && m->mean_puzzle_examples <= 1e9) return AN_OK;
    return an_fail(err, AN_E_DATA, "%s: \"mean_puzzle_examples\" is missing or no number of 0 to 1e9", where);
}

static an_status same_meta(an_err *err, const an_puzzle_set *s, const char *where, const an_puzzle_meta *m)
{
    const struct {
        const char *key;
        int64_t first, other;
    } keys[] = {{"vocab_size", s->meta.vocab_size, m->vocab_size},
                {"seq_len", s->meta.seq_len, m->seq_len},
                {"pad_id", s->meta.pad_id, m->pad_id},
                {"ignore_label_id", s->meta.ignores ? s->meta.ignore_label_id : AN_PUZZLE_IGNORED,
                 m->ignores ? m->ignore_label_id : AN_PUZZLE_IGNORED},
                {"blank_identifier_id", s->meta.blank_identifier_id, m->blank_identifier_id},
                {"num_puzzle_identifiers", s->meta.num_puzzle_identifiers, m->num_puzzle_identifiers}};
    for (size_t i = 0; i < AN_COUNT(keys); i++)
        if (keys[i].first != keys[i].other)
            return an_fail(err, AN_E_DATA,
                           "%s: \"%s\" is %lld, in %s %lld: directories that are trained on together agree", where,
                           keys[i].key, (long long)keys[i].other, s->dir[0], (long long)keys[i].first);
    return AN_OK;
}

static an_status open_sets(an_err *err, an_puzzle_set *s, const char *folder, const json_t *json, const char *where)
{
    an_puzzle_meta m = {0};
    const json_t *sets = json_object_get(json, "sets");
    const int64_t groups = s->groups;
    AN_TRY(take_meta(err, where, json, &m));
    if (s->n_parts > 0) AN_TRY(same_meta(err, s, where, &m));
    if (!json_is_array(sets) || json_array_size(sets) == 0)
        return an_fail(err, AN_E_DATA, "%s: \"sets\" is missing or no list of names", where);
    for (size_t i = 0; i < json_array_size(sets); i++) {
        const char *name = json_string_value(json_array_get(sets, i));
        if (!name) return an_fail(err, AN_E_DATA, "%s: \"sets\" is no list of names", where);
        AN_TRY(open_part(err, s, &m, folder, name));
    }
    if (s->groups - groups != m.total_groups)
        return an_fail(err, AN_E_DATA, "%s: \"total_groups\" is %lld, the files have %lld", where,
                       (long long)m.total_groups, (long long)(s->groups - groups));
    if (s->meta.vocab_size == 0) {
        s->meta = m;
        return AN_OK;
    }
    /* the mean of all: weighed by groups, of which an epoch takes each once */
    const double sum =
        s->meta.mean_puzzle_examples * (double)s->meta.total_groups + m.mean_puzzle_examples * (double)m.total_groups;
    s->meta.total_groups += m.total_groups;
    s->meta.total_puzzles += m.total_puzzles;
    s->meta.mean_puzzle_examples = s->meta.total_groups > 0 ? sum / (double)s->meta.total_groups : 0;
    return AN_OK;
}

static an_status open_dir(an_err *err, an_puzzle_set *s, const char *dir, const char *split)
{
    char folder[AN_PUZZLE_PATH_BYTES], path[AN_PUZZLE_PATH_BYTES + 16];
    struct stat info;
    json_t *json;
    if (snprintf(folder, sizeof folder, "%s/%s", dir, split) >= (int)sizeof folder)
        return an_fail(err, AN_E_USAGE, "%.200s...: the path is too long", dir);
    snprintf(path, sizeof path, "%s/dataset.json", folder);
    if (stat(path, &info) != 0)
        return an_fail(err, AN_E_IO,
                       "%s: %s; a data set is a folder that anneal prepare sudoku, maze, arc or chat made", path,
                       strerror(errno));
    AN_TRY(an_json_read(err, path, META_BYTES, &json));
    an_status status = open_sets(err, s, folder, json, path);
    json_decref(json);
    return status;
}

an_status an_puzzle_set_open(an_err *err, const char *const *dirs, int n, const char *split, an_puzzle_set **out)
{
    *out = NULL;
    if (n < 1 || n > AN_PUZZLE_MAX_PARTS)
        return an_fail(err, AN_E_USAGE, "data_paths: %d directories; 1 to %d can be trained on", n,
                       AN_PUZZLE_MAX_PARTS);
    an_puzzle_set *s = calloc(1, sizeof *s);
    if (!s) return an_fail_nomem(err, dirs[0], sizeof *s);
    if (pthread_mutex_init(&s->lock, NULL) != 0) {
        free(s);
        return an_fail_nomem(err, "a lock", sizeof s->lock);
    }
    an_status status = AN_OK;
    s->dir = calloc((size_t)n, sizeof *s->dir);
    if (!s->dir) status = an_fail_nomem(err, dirs[0], (size_t)n * sizeof *s->dir);
    for (int i = 0; status == AN_OK && i < n; i++) {
        if (snprintf(s->dir[i], sizeof s->dir[i], "%s", dirs[i]) >= (int)sizeof s->dir[i])
            status = an_fail(err, AN_E_USAGE, "%.200s...: the path is too long", dirs[i]);
        s->n_dirs = i + 1;
        if (status == AN_OK) status = open_dir(err, s, dirs[i], split);
    }
    if (status == AN_OK && s->examples == 0)
        status = an_fail(err, AN_E_DATA, "%s: the split \"%s\" is empty", dirs[0], split);
    if (status == AN_OK)
        *out = s;
    else
        an_puzzle_set_close(s);
    return status;
}

an_status an_puzzle_set_open_list(an_err *err, const char *dirs, const char *split, an_puzzle_set **out)
{
    char *copy[AN_PUZZLE_MAX_PARTS];
    int n = 0;
    an_text name = {0};
    an_list list = an_list_begin(dirs);
    an_status status = AN_OK;
    *out = NULL;
    while (status == AN_OK && an_list_next(&list, &name)) {
        while (name.len > 1 && name.data[name.len - 1] == '/') name.data[--name.len] = 0;
        if (n == AN_PUZZLE_MAX_PARTS)
            status = an_fail(err, AN_E_USAGE, "data_paths=%.200s: too many directories", dirs);
        else if ((copy[n] = strdup(name.data)) == NULL)
            status = an_fail_nomem(err, "data_paths", name.len);
        else
            n++;
    }
    if (status == AN_OK && name.failed) status = an_fail_nomem(err, "data_paths", strlen(dirs));
    if (status == AN_OK && list.bad)
        status =
            an_fail(err, AN_E_USAGE,
                    "data_paths=%.200s: a quote has no end, or no comma behind it; a folder whose name has commas or "
                    "quotes is written 'it''s'",
                    dirs);
    if (status == AN_OK && n == 0) status = an_fail(err, AN_E_USAGE, "data_paths=%.200s: no directory is named", dirs);
    if (status == AN_OK) status = an_puzzle_set_open(err, (const char *const *)copy, n, split, out);
    while (n > 0) free(copy[--n]);
    an_text_free(&name);
    return status;
}

int64_t an_puzzle_set_length(const char *dirs)
{
    char path[AN_PUZZLE_PATH_BYTES];
    an_text name = {0};
    an_list list = an_list_begin(dirs);
    an_puzzle_meta m = {0};
    json_t *json = NULL;
    const bool named =
        an_list_next(&list, &name) && snprintf(path, sizeof path, "%s/test/dataset.json", name.data) < (int)sizeof path;
    if (named && an_json_read(NULL, path, META_BYTES, &json) == AN_OK && take_meta(NULL, path, json, &m) != AN_OK)
        m.seq_len = 0;
    json_decref(json);
    an_text_free(&name);
    return m.seq_len;
}

void an_puzzle_set_close(an_puzzle_set *s)
{
    if (!s) return;
    for (int i = 0; i < s->n_parts; i++) close_part(&s->part[i]);
    pthread_mutex_destroy(&s->lock);
    free(s->part);
    free(s->place);
    free(s->dir);
    free(s);
}

/* ---- asking */

const an_puzzle_meta *an_puzzle_set_meta(const an_puzzle_set *s)
{
    return &s->meta;
}
int64_t an_puzzle_set_examples(const an_puzzle_set *s)
{
    return s->examples;
}
int64_t an_puzzle_set_groups(const an_puzzle_set *s)
{
    return s->groups;
}
an_status an_puzzle_set_agree(an_err *err, const an_puzzle_set *train, const an_puzzle_set *test, bool ids)
{
    const an_puzzle_meta *a = &train->meta, *b = &test->meta;
    const struct {
        const char *key;
        int64_t train, test;
        bool less; /* the test split may have less */
    } keys[] = {{"vocab_size", a->vocab_size, b->vocab_size, false},
                {"seq_len", a->seq_len, b->seq_len, false},
                {"pad_id", a->pad_id, b->pad_id, false},
                {"blank_identifier_id", a->blank_identifier_id, b->blank_identifier_id, false},
                {"num_puzzle_identifiers", a->num_puzzle_identifiers, b->num_puzzle_identifiers, true}};
    for (size_t i = 0; i < AN_COUNT(keys) - !ids; i++)
        if (keys[i].test > keys[i].train || (keys[i].test < keys[i].train && !keys[i].less))
            return an_fail(err, AN_E_DATA,
                           "%s/test/dataset.json: \"%s\" is %lld, in %s/train/dataset.json %lld: a model is tested on "
                           "what it is trained for; prepare both splits together",
                           test->dir[0], keys[i].key, (long long)keys[i].test, train->dir[0], (long long)keys[i].train);
    return AN_OK;
}

const char *an_puzzle_set_dir(const an_puzzle_set *s, int i)
{
    return i >= 0 && i < s->n_dirs ? s->dir[i] : NULL;
}

size_t an_puzzle_set_bytes(const an_puzzle_set *s)
{
    size_t bytes = sizeof *s + (size_t)s->cap * sizeof *s->part;
    for (int i = 0; i < s->n_parts; i++)
        bytes += (size_t)(2 * s->part[i].puzzles + s->part[i].groups + 2) * sizeof(int32_t);
    return bytes;
}

/* The puzzle that example e of a part belongs to. */
static int64_t find_puzzle(const an_puzzle_part *p, int64_t e)
{
    if (p->singles) return e;
    int64_t low = 0, high = p->puzzles;
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        if (p->puzzle_at[middle] <= e)
            low = middle;
        else
            high = middle;
    }
    return low;
}

an_status an_puzzle_set_read(an_err *err, const an_puzzle_set *s, int64_t e, int32_t *inputs, int32_t *labels,
                             int32_t *identifier)
{
    const an_puzzle_meta *m = &s->meta;
    int k = s->n_parts - 1;
    if (e < 0 || e >= s->examples)
        return an_fail(err, AN_E_INTERNAL, "example %lld of %lld", (long long)e, (long long)s->examples);
    while (k > 0 && s->part[k].first > e) k--;
    const an_puzzle_part *p = &s->part[k];
    const int64_t row = (e - p->first) * m->seq_len;
    /* looked at again: the file may have changed since it was opened */
    for (int64_t i = 0; i < m->seq_len; i++) {
        const int64_t token = whole(&p->inputs, row + i);
        if ((uint64_t)token >= (uint64_t)m->vocab_size) return bad_token(err, m, p, "inputs", row + i, token);
        inputs[i] = (int32_t)token;
    }
    for (int64_t i = 0; labels && i < m->seq_len; i++) {
        const int64_t token = whole(&p->labels, row + i);
        const bool ignored = is_ignored(m, token);
        if ((uint64_t)token >= (uint64_t)m->vocab_size && !ignored)
            return bad_token(err, m, p, "labels", row + i, token);
        labels[i] = ignored ? AN_PUZZLE_IGNORED : (int32_t)token;
    }
    if (identifier) *identifier = p->identifier[find_puzzle(p, e - p->first)];
    return AN_OK;
}

an_status an_puzzle_set_labelled(an_err *err, const an_puzzle_set *s, const char *split, int64_t length)
{
    const int64_t seq = s->meta.seq_len, places = AN_MIN(length, seq);
    for (int k = 0; k < s->n_parts; k++) {
        const an_puzzle_part *p = &s->part[k];
        for (int64_t e = 0; e < p->examples; e++)
            for (int64_t i = 0; i < places; i++)
                if (!is_ignored(&s->meta, whole(&p->labels, e * seq + i))) return AN_OK;
    }
    if (places < seq)
        return an_fail(
            err, AN_E_DATA,
            "%s/%s: no example has a label among its first %lld places, where arch.seq_len=%lld cuts it: set "
            "arch.seq_len=%lld, or prepare the data again",
            s->dir[0], split, (long long)places, (long long)places, (long long)seq);
    return an_fail(
        err, AN_E_DATA,
        "%s__labels.npy: no example has a label: every number in it is one that is ignored (%lld or %d), so there is "
        "nothing to learn or to measure; prepare the data again",
        s->part[0].path, (long long)(s->meta.ignores ? s->meta.ignore_label_id : AN_PUZZLE_IGNORED), AN_PUZZLE_IGNORED);
}

void an_puzzle_set_hash(const an_puzzle_set *s, char out[AN_HASH_TEXT_BYTES])
{
    an_hasher h = an_hasher_begin();
    const size_t length = (size_t)s->meta.seq_len;
    int32_t *row = malloc((2 * length + 1) * sizeof *row);
    bool ok = row != NULL;
    for (int64_t e = 0; ok && e < s->examples; e++)
        ok = an_puzzle_set_read(NULL, s, e, row, row + length, row + 2 * length) == AN_OK &&
             an_hasher_add(&h, row, (2 * length + 1) * sizeof *row);
    an_hasher_end_text(&h, ok, out);
    free(row);
}

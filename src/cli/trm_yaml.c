/* trm_yaml.c: reads the settings files of TinyRecursiveModels (--config-path): a mapping whose `defaults` name files of
 * groups beside it.
 *
 *     defaults: [{arch: trm}, _self_]     arch/trm.yaml, whose keys become arch.KEY; _self_ is this file's place
 *     defaults: [cfg, override arch: big] another choice than the one that cfg makes
 *     lr: 1e-4                            key=value; lists become [a,b], mappings key.key=value
 *
 * ${.key} is the value of a key of the same mapping. Lists of mappings and the group `hydra` configure that
 * program's output and are ignored.
 * Invariants: at most MAX_FILES files of MAX_BYTES are read, each of at most MAX_PAIRS keys and values. */
#include "cli/trm_command.h"
#include "io/formats/json.h"
#include "io/formats/yaml_check.h"
#include "platform/platform.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum { MAX_BYTES = 1 << 20, MAX_DEPTH = 8, MAX_PAIRS = 20000, MAX_FILES = 64, MAX_CHOICES = 32, PATH_BYTES = 1024 };

/* Which file of a group is taken in place of the one that a file further in names. */
typedef struct choice {
    const char *group, *name;
} choice;

/* What the files that name each other share. */
typedef struct source {
    const char *folder;
    an_argv *out;
    bool *chat;
    int files;                  /* read so far */
    choice choice[MAX_CHOICES]; /* those of files further out, whose documents are still open, first */
    int n_choices;
    bool used_first; /* of the choices */
} source;

typedef struct reader {
    yaml_document_t document;
    const char *path;
    source *from;
} reader;

static an_status bad(an_err *err, const reader *r, const yaml_node_t *node, const char *why)
{
    return an_fail(err, AN_E_USAGE, "%s:%zu: %s", r->path, node ? node->start_mark.line + 1 : 1, why);
}

static const char *text_of(const yaml_node_t *node)
{
    return node && node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : NULL;
}

static yaml_node_t *at(reader *r, int index)
{
    return yaml_document_get_node(&r->document, index);
}

/* The value of a key in a mapping; NULL: it has none. */
static yaml_node_t *find(reader *r, yaml_node_t *map, const char *key)
{
    for (yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top; p++) {
        const char *name = text_of(at(r, p->key));
        if (name && strcmp(name, key) == 0) return at(r, p->value);
    }
    return NULL;
}

static an_status put(an_err *err, reader *r, const char *key, const char *value)
{
    char *text = an_argv_printf(r->from->out, "%s=%s", key, value);
    if (!text) return an_fail_nomem(err, r->path, strlen(value));
    if (strcmp(key, "arch.causal") == 0) *r->from->chat = value[0] == 't' || value[0] == 'T';
    return an_argv_add(err, r->from->out, text);
}

/* [a,b] of scalars; a list of anything else is ignored. */
static an_status put_list(an_err *err, reader *r, const char *key, const yaml_node_t *list)
{
    an_text text = {0};
    bool plain = true;
    an_text_puts(&text, "[");
    for (yaml_node_item_t *i = list->data.sequence.items.start; i < list->data.sequence.items.top; i++) {
        const char *item = text_of(at(r, *i));
        plain &= item != NULL;
        if (item && i > list->data.sequence.items.start) an_text_puts(&text, ",");
        if (item) an_list_put(&text, item);
    }
    an_text_puts(&text, "]");
    an_status status = text.failed ? an_fail_nomem(err, r->path, text.len)
                       : plain     ? put(err, r, key, text.data)
                                   : AN_OK;
    an_text_free(&text);
    return status;
}

static an_status put_map(an_err *err, reader *r, const char *prefix, yaml_node_t *map, int depth)
{
    if (depth == MAX_DEPTH) return bad(err, r, map, "mappings inside of mappings, deeper than settings are");
    for (yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top; p++) {
        const char *name = text_of(at(r, p->key)), *value;
        yaml_node_t *node = at(r, p->value);
        char key[160];
        if (!name || !node) return bad(err, r, at(r, p->key), "a key is not a word");
        if (snprintf(key, sizeof key, "%s%s", prefix, name) >= (int)sizeof key)
            return bad(err, r, node, "a key is too long");
        if (depth == 0 && !*prefix && (strcmp(name, "defaults") == 0 || strcmp(name, "hydra") == 0)) continue;
        if (node->type == YAML_SEQUENCE_NODE) {
            AN_TRY(put_list(err, r, key, node));
            continue;
        }
        if (node->type == YAML_MAPPING_NODE) {
            char inner[168];
            snprintf(inner, sizeof inner, "%s.", key);
            AN_TRY(put_map(err, r, inner, node, depth + 1));
            continue;
        }
        value = text_of(node);
        if (value && strncmp(value, "${.", 3) == 0 && value[strlen(value) - 1] == '}') {
            char other[128];
            snprintf(other, sizeof other, "%.*s", (int)AN_MIN(strlen(value) - 4, sizeof other - 1), value + 3);
            /* a width that follows hidden_size goes on following it */
            if (strcmp(name, "puzzle_emb_ndim") == 0 && strcmp(other, "hidden_size") == 0)
                value = "-1";
            else
                value = text_of(find(r, map, other));
            if (!value) return bad(err, r, node, "${.key} names no key of this mapping");
        }
        const bool none = !value || an_recursive_null(value);
        if (none && strcmp(key, "eval_interval") != 0)
            continue; /* as if not there; of evaluations null says that there are none between */
        if (none) value = "null";
        AN_TRY(put(err, r, key, value));
    }
    return AN_OK;
}

static an_status read_file(an_err *err, source *from, const char *group, const char *name, int depth);

/* The group that `- override arch: NAME` means; NULL: it is none. */
static const char *overridden(const char *group)
{
    static const char word[] = "override ";
    if (!group || strncmp(group, word, sizeof word - 1) != 0) return NULL;
    group += sizeof word - 1;
    return group + strspn(group, " /");
}

static an_status note_choices(an_err *err, reader *r, yaml_node_t *list)
{
    source *from = r->from;
    for (yaml_node_item_t *i = list->data.sequence.items.start; i < list->data.sequence.items.top; i++) {
        yaml_node_t *item = at(r, *i);
        if (item->type != YAML_MAPPING_NODE) continue;
        for (yaml_node_pair_t *p = item->data.mapping.pairs.start; p < item->data.mapping.pairs.top; p++) {
            const char *group = overridden(text_of(at(r, p->key))), *value = text_of(at(r, p->value));
            if (!group || !value) continue;
            if (from->n_choices == MAX_CHOICES) return bad(err, r, item, "more overrides than 32");
            from->choice[from->n_choices++] = (choice){group, value};
        }
    }
    return AN_OK;
}

static const char *chosen(source *from, const char *group, const char *name)
{
    for (int i = 0; i < from->n_choices; i++) {
        if (strcmp(from->choice[i].group, group) != 0) continue;
        from->used_first |= i == 0;
        return from->choice[i].name;
    }
    return name;
}

/* - arch: trm   or   - other_file   or   - _self_, at which *self is set and the keys beside are read */
static an_status read_defaults(an_err *err, reader *r, yaml_node_t *list, int depth, const char *prefix, bool *self)
{
    if (list->type != YAML_SEQUENCE_NODE) return bad(err, r, list, "`defaults` is a list");
    AN_TRY(note_choices(err, r, list));
    for (yaml_node_item_t *i = list->data.sequence.items.start; i < list->data.sequence.items.top; i++) {
        yaml_node_t *item = at(r, *i);
        const char *name = text_of(item);
        if (name && strcmp(name, "_self_") == 0) {
            *self = true;
            AN_TRY(put_map(err, r, prefix, yaml_document_get_root_node(&r->document), 0));
            continue;
        }
        if (name) {
            AN_TRY(read_file(err, r->from, "", name, depth + 1));
            continue;
        }
        if (item->type != YAML_MAPPING_NODE) return bad(err, r, item, "`defaults` names files: - group: name");
        for (yaml_node_pair_t *p = item->data.mapping.pairs.start; p < item->data.mapping.pairs.top; p++) {
            const char *group = text_of(at(r, p->key)), *value = text_of(at(r, p->value));
            if (!group || !value) return bad(err, r, item, "`defaults` names files: - group: name");
            if (overridden(group)) continue;
            value = chosen(r->from, group, value);
            if (an_recursive_null(value)) continue;
            AN_TRY(read_file(err, r->from, group, value, depth + 1));
        }
    }
    return AN_OK;
}

static an_status read_document(an_err *err, reader *r, const char *group, int depth)
{
    yaml_node_t *root = yaml_document_get_root_node(&r->document);
    char prefix[160] = "";
    if (!root || root->type != YAML_MAPPING_NODE) return bad(err, r, root, "settings are a mapping of keys to values");
    yaml_node_t *defaults = find(r, root, "defaults");
    bool self = false;
    if (*group) snprintf(prefix, sizeof prefix, "%.100s.", group);
    if (defaults) AN_TRY(read_defaults(err, r, defaults, depth, prefix, &self));
    return self ? AN_OK : put_map(err, r, prefix, root, 0);
}

static bool is_name(const char *name)
{
    return *name && !strstr(name, "..") && name[0] != '/' && strlen(name) < 200;
}

/* The document is loaded when it is known to be small. */
static an_status read_text(an_err *err, reader *r, const char *group, const char *text, size_t n, int depth)
{
    yaml_parser_t parser;
    an_status status;
    char quoted[AN_QUOTED_BYTES];
    status = an_yaml_check(err, r->path, text, n, &(an_yaml_bounds){.depth = MAX_DEPTH + 2, .most = MAX_PAIRS});
    if (status != AN_OK) return status == AN_E_DATA ? AN_E_USAGE : status; /* settings, not data */
    if (!yaml_parser_initialize(&parser)) return an_fail_nomem(err, r->path, sizeof parser);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);
    if (!yaml_parser_load(&parser, &r->document))
        status = an_fail(err, AN_E_USAGE, "%s:%zu: not valid YAML: %s", r->path, parser.problem_mark.line + 1,
                         an_quoted(parser.problem ? parser.problem : "no memory", quoted));
    else {
        const int n_choices = r->from->n_choices;
        status = read_document(err, r, group, depth);
        r->from->n_choices = n_choices; /* what this document chose lies in it */
        yaml_document_delete(&r->document);
    }
    yaml_parser_delete(&parser);
    return status;
}

static an_status read_file(an_err *err, source *from, const char *group, const char *name, int depth)
{
    char path[PATH_BYTES], *text, quoted[AN_QUOTED_BYTES];
    size_t n;
    reader r = {.path = path, .from = from};
    if (!is_name(name) || (*group && !is_name(group)) || depth == MAX_DEPTH || from->files++ == MAX_FILES)
        return an_fail(err, AN_E_USAGE, "%s: %s is no file of settings beside it, or files name each other without end",
                       from->folder, an_quoted(name, quoted));
    const char *dot = strrchr(name, '.');
    const char *ending = dot && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0) ? "" : ".yaml";
    if (snprintf(path, sizeof path, "%s/%s%s%s%s", from->folder, group, *group ? "/" : "", name, ending) >=
        (int)sizeof path)
        return an_fail(err, AN_E_USAGE, "%.200s...: the path is too long", from->folder);
    AN_TRY(an_file_read(err, path, MAX_BYTES, &text, &n));
    an_status status = read_text(err, &r, group, text, n, depth);
    free(text);
    return status;
}

an_status an_recursive_settings(an_err *err, const char *folder, const char *name, const char *arch, an_argv *out,
                                bool *chat)
{
    source from = {.folder = folder, .out = out, .chat = chat};
    *chat = false;
    if (arch) from.choice[from.n_choices++] = (choice){"arch", arch};
    AN_TRY(read_file(err, &from, "", name, 0));
    if (!arch || from.used_first) return AN_OK;
    return an_fail(err, AN_E_USAGE, "arch=%.64s: %s/%.64s names no group arch in its defaults", arch, folder, name);
}

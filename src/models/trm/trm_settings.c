/* trm_settings.c: see trm_settings.h. */
#define _DEFAULT_SOURCE
#include "models/trm/trm_settings.h"
#include "io/checkpoint.h"
#include "io/formats/json.h"
#include "io/formats/yaml_check.h"
#include "platform/platform.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yaml.h>

enum { MAX_BYTES = 1 << 20, MAX_DEPTH = 8, MAX_PAIRS = 20000 };

typedef struct reader {
    yaml_document_t document;
    const char *path;
    an_trm_settings *s;
    an_text *data;
} reader;

static const char *text_of(reader *r, int index)
{
    const yaml_node_t *node = yaml_document_get_node(&r->document, index);
    return node && node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : NULL;
}

static bool is_null(const char *value)
{
    static const char *const words[] = {"", "~", "null"};
    for (size_t i = 0; i < AN_COUNT(words); i++)
        if (strcmp(value, words[i]) == 0) return true;
    return false;
}

static void take_folders(reader *r, const yaml_node_t *list)
{
    for (yaml_node_item_t *i = list->data.sequence.items.start; i < list->data.sequence.items.top; i++) {
        const char *folder = text_of(r, *i);
        if (!folder) continue;
        if (r->data->len) an_text_puts(r->data, ",");
        an_list_put(r->data, folder);
    }
}

/* "num_heads: 8" under "arch:" is arch.num_heads; what is deeper, as loss_type, is below that. */
static an_status take_map(an_err *err, reader *r, const char *prefix, const yaml_node_t *map, int depth)
{
    for (yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top; p++) {
        const yaml_node_t *node = yaml_document_get_node(&r->document, p->value);
        const char *name = text_of(r, p->key), *value = text_of(r, p->value);
        char key[160], origin[AN_CKPT_PATH_BYTES + 24];
        if (!name || !node || snprintf(key, sizeof key, "%s%s", prefix, name) >= (int)sizeof key) continue;
        if (node->type == YAML_MAPPING_NODE && depth < MAX_DEPTH) {
            char inner[168];
            snprintf(inner, sizeof inner, "%s.", key);
            AN_TRY(take_map(err, r, inner, node, depth + 1));
        }
        if (node->type == YAML_SEQUENCE_NODE && strcmp(key, "data_paths") == 0) take_folders(r, node);
        if (!value || is_null(value) || !an_config_find(an_trm_model.keys, key)) continue;
        snprintf(origin, sizeof origin, "%s:%zu", r->path, node->start_mark.line + 1);
        AN_TRY(an_config_set(err, an_trm_model.keys, r->s, origin, key, value));
    }
    return AN_OK;
}

/* The document is loaded when it is known to be small. */
static an_status take_text(an_err *err, reader *r, const char *text, size_t n)
{
    yaml_parser_t parser;
    char quoted[AN_QUOTED_BYTES];
    an_status status = AN_OK;
    AN_TRY(an_yaml_check(err, r->path, text, n, &(an_yaml_bounds){.depth = MAX_DEPTH, .most = MAX_PAIRS}));
    if (!yaml_parser_initialize(&parser)) return an_fail_nomem(err, r->path, sizeof parser);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);
    if (yaml_parser_load(&parser, &r->document)) {
        const yaml_node_t *root = yaml_document_get_root_node(&r->document);
        if (root && root->type == YAML_MAPPING_NODE) status = take_map(err, r, "", root, 0);
        yaml_document_delete(&r->document);
    } else {
        status = an_fail(err, AN_E_IO, "%s:%zu: not valid YAML: %s", r->path, parser.problem_mark.line + 1,
                         an_quoted(parser.problem ? parser.problem : "no memory", quoted));
    }
    yaml_parser_delete(&parser);
    return status;
}

an_status an_trm_settings_beside(an_err *err, const char *path, an_trm_settings *s, an_text *data)
{
    char beside[AN_CKPT_PATH_BYTES], *text;
    const char *slash = strrchr(path, '/');
    const int n = snprintf(beside, sizeof beside, "%.*sall_config.yaml", slash ? (int)(slash - path + 1) : 0, path);
    size_t bytes;
    if (n < 0 || n >= (int)sizeof beside || access(beside, F_OK) != 0) return AN_OK;
    AN_TRY(an_file_read(err, beside, MAX_BYTES, &text, &bytes));
    an_status status = take_text(err, &(reader){.path = beside, .s = s, .data = data}, text, bytes);
    free(text);
    return status == AN_OK && data->failed ? an_fail_nomem(err, beside, data->len) : status;
}

/* pt2_graph.h: parses an exported program into a list of nodes over numbered values.
 *
 * Owns:      models/NAME.json (torch/_export/serde/schema.py, major version 8): inputs with their meaning, nodes and
 *            outputs. The nested graph of a wrap_with_set_grad_enabled is inlined; its results are detached where the
 *            gradient was disabled.
 * Does not:  know what an operation means, or the bytes of tensors (archive.h, tied ones too); give symbolic sizes (dynamic shapes, SymInt) their
 *            numbers: rule_shape.c does, when a step is built.
 *
 * Invariants: the text is untrusted. A value is defined exactly once, by an input or a node, before it is read. Unknown
 * keys are ignored; unknown kinds of arguments are refused. */
#ifndef AN_IMPORT_PT2_GRAPH_H
#define AN_IMPORT_PT2_GRAPH_H

#include "import/archive.h"

enum { AN_PT2_MAX_NODES = 1 << 18, AN_PT2_MAX_ARGS = 1 << 16, AN_PT2_MAX_REGIONS = 16 };

typedef enum an_pt2_arg_kind {
    AN_ARG_NONE,
    AN_ARG_TENSOR,  /* value */
    AN_ARG_TENSORS, /* values; -1: None */
    AN_ARG_INT,     /* number */
    AN_ARG_INTS,
    AN_ARG_FLOAT,
    AN_ARG_FLOATS,
    AN_ARG_BOOL,
    AN_ARG_TEXT,
    AN_ARG_DTYPE, /* number: ScalarType */
    AN_ARG_OTHER  /* a layout, memory format or device, which is ignored */
} an_pt2_arg_kind;

/* A number, or a symbol: a size that is known only when a step is built, from the shape of an input (an_rule_sym_size). */
typedef struct an_pt2_number {
    int64_t i;
    double f;
    int32_t symbol; /* >= 0: the number is the value of this symbol */
} an_pt2_number;

typedef struct an_pt2_arg {
    an_pt2_arg_kind kind;
    int32_t n;              /* of lists */
    int32_t value;          /* of AN_ARG_TENSOR */
    an_pt2_number number;   /* of INT, FLOAT, BOOL, DTYPE */
    int32_t *values;        /* of TENSORS */
    an_pt2_number *numbers; /* of INTS and FLOATS */
    const char *text;
} an_pt2_arg;

typedef struct an_pt2_value {
    const char *name;
    int torch_dtype, rank;
    int64_t dim[AN_PT2_MAX_RANK];   /* of a symbolic axis: the size that it was exported with */
    bool symbolic[AN_PT2_MAX_RANK]; /* which axes may have another size */
    int64_t step
        [AN_PT2_MAX_RANK]; /* between neighbours in PyTorch's memory, at the size of the export; of an axis of length 1: any */
    bool contiguous;
} an_pt2_value;

typedef struct an_pt2_node {
    const char *target; /* "aten.linear.default" */
    int32_t n_in, n_out;
    const char **in_name;       /* "" where the file names none */
    an_pt2_arg *in, *out;       /* results are TENSOR, TENSORS or NONE; an INT, FLOAT or BOOL defines a symbol */
    const char *module;         /* "encoder.0"; "" is the model itself */
    const char *place;          /* the line of code, "my.py:41"; "" is unknown */
    bool in_place;              /* its result is written into its first argument; see an_aten_written */
    bool without_autocast;      /* the precision policy narrows none of its operands */
    const struct an_aten *rule; /* aten.h; NULL: there is none */
    an_pt2_arg *arg;            /* the rule's arguments in order, defaults filled in */
} an_pt2_node;

typedef enum an_input_kind { AN_INPUT_USER, AN_INPUT_PARAMETER, AN_INPUT_BUFFER, AN_INPUT_CONSTANT } an_input_kind;

typedef struct an_pt2_input {
    an_input_kind kind;
    int32_t value;    /* -1: an argument of forward that is no tensor */
    const char *name; /* of the argument; of parameters, buffers and constants as in state_dict */
    int32_t tensor;   /* of the archive; -1: an argument */
    bool persistent;  /* of a buffer */
} an_pt2_input;

typedef enum an_output_kind { AN_OUTPUT_USER, AN_OUTPUT_LOSS, AN_OUTPUT_BUFFER } an_output_kind;

typedef struct an_pt2_output {
    an_output_kind kind;
    int32_t value;    /* -1: no tensor */
    const char *name; /* of the value; of an AN_OUTPUT_BUFFER: of the buffer that it is assigned to */
} an_pt2_output;

typedef struct an_pt2_graph {
    const an_pt2 *archive;
    an_arena *arena; /* the archive's */
    an_pt2_value *value;
    int32_t n_values, cap_values;
    an_pt2_node *node;
    int32_t n_nodes, cap_nodes;
    an_pt2_input *input;
    int32_t n_inputs;
    an_pt2_output *output;
    int32_t n_outputs;
    int32_t n_symbols;
    bool training_ir; /* the file says that it may be differentiated */
} an_pt2_graph;

/* `program` is archive->model or archive->eval. After a failure, too, an_pt2_graph_close is called. */
an_status an_pt2_graph_open(an_err *err, an_pt2 *archive, const json_t *program, an_pt2_graph *out);
void an_pt2_graph_close(an_pt2_graph *g);

#endif

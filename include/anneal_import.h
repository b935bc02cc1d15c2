/* anneal_import.h: a model that PyTorch exported (torch.export.save, a .pt2 file), described, built and trained without
 * PyTorch.
 *
 *     char why[AN_IMPORT_WHY];
 *     an_import *file = an_import_open("model.pt2", why);
 *     an_import_model *m = an_import_bind(file, cx, why);            parameters and buffers, with their values
 *     for (...) {
 *         an_tensor *in[] = {an_input(cx, AN_F32, AN_SHAPE(32, 3, 224, 224), images)}, *out[1];
 *         an_import_build(m, AN_IMPORT_TRAIN, in, out, why);         the graph, as any other part of a step
 *         an_tensor *loss = an_mean(an_cross_entropy(out[0], an_input(cx, AN_I32, AN_SHAPE(32), labels)), AN_ALL);
 *         an_backward(loss); an_adamw(cx, ...); an_eval(loss); an_reset(cx);
 *     }
 *     an_import_release(m); an_import_close(file);
 *
 * Parameters and buffers have the names of state_dict and PyTorch's shapes; tied parameters are one, under the first of
 * their names. 64-, 16- and 8-bit integers are int32. What cannot be imported is refused with one sentence that names
 * all of it, in `why`.
 */
#ifndef ANNEAL_IMPORT_H
#define ANNEAL_IMPORT_H

#include <anneal.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { AN_IMPORT_WHY = 1024 }; /* bytes of a sentence; `why` may be NULL */

typedef struct an_import an_import;             /* an opened file; of no context */
typedef struct an_import_model an_import_model; /* its parameters in a context */

/* NULL: why[] has the sentence. A file of several programs is trained by "model" and evaluated by "eval". */
AN_API an_import *an_import_open(const char *path, char why[AN_IMPORT_WHY]);
/* The same of a description (an_import_description): everything but the tensors' elements. `name` is for sentences. */
AN_API an_import *an_import_open_description(const char *name, const char *json, size_t bytes, char why[AN_IMPORT_WHY]);
AN_API void an_import_close(an_import *file);
/* The description as text, to be kept with the weights; free() it. NULL: no memory. */
AN_API char *an_import_description(const an_import *file);

typedef enum an_import_kind {
    AN_IMPORT_INPUT,     /* arguments of forward, flattened, those that are tensors */
    AN_IMPORT_OUTPUT,    /* its results */
    AN_IMPORT_PARAMETER, /* all names, tied ones too */
    AN_IMPORT_BUFFER     /* buffers and lifted constants */
} an_import_kind;

typedef struct an_import_entry {
    const char *name;
    const char *torch_dtype; /* "int64" */
    an_dtype dtype;          /* inside */
    an_shape shape;          /* the sizes that it was exported with */
    bool first_axis_free;    /* the file lets the first axis have any length */
    bool requires_grad;      /* of parameters */
    bool persistent;         /* of buffers: they are in state_dict */
    const char *tied_to;     /* the name under which a tied parameter or buffer is; NULL: its own */
    int64_t ids_below; /* of inputs: the rows of the smallest table that they are looked up in; 0: they are no ids */
} an_import_entry;

AN_API int an_import_count(const an_import *file, an_import_kind kind);
AN_API bool an_import_get(const an_import *file, an_import_kind kind, int i, an_import_entry *out);
AN_API bool an_import_has_eval(const an_import *file); /* a program of its own for evaluation */
/* What is to be known of a file that is read all the same, as a sentence: it was written by a newer PyTorch than this library knows. ""
 * where there is nothing. */
AN_API void an_import_note(const an_import *file, char note[AN_IMPORT_WHY]);
/* The operations of the file as lines of text: how often, name, what it becomes or that it is missing; free() it. */
AN_API char *an_import_operations(const an_import *file);
/* Whether every operation is known; if not, the sentence that names those that are not. */
AN_API an_status an_import_check(an_import *file, char why[AN_IMPORT_WHY]);

/* Declares parameters and states in the context. Their values come from the file; of a description they are zeros, for
 * the caller to write (an_persist_write). `file` must outlive the model. NULL: why[] has the sentence. */
AN_API an_import_model *an_import_bind(an_import *file, an_ctx *cx, char why[AN_IMPORT_WHY]);
/* The same in two calls. Between them an_param_freeze and an_param_decay may be called, which is too late once a parameter
 * has its value. */
AN_API an_import_model *an_import_declare(an_import *file, an_ctx *cx, char why[AN_IMPORT_WHY]);
AN_API an_status an_import_fill(an_import_model *m, char why[AN_IMPORT_WHY]);
AN_API void an_import_release(an_import_model *m); /* NULL is fine */

/* Writes the archive again for torch.export.load, with elements from `read`: of each parameter (by the first of its tied
 * names), buffer and lifted constant, in C order and in the dtype inside; NULL is a failure whose sentence is `read`'s to
 * put into `why`. */
typedef const void *(*an_import_read)(void *user, const an_import_entry *tensor, char why[AN_IMPORT_WHY]);
AN_API an_status an_import_write(const an_import *file, const char *path, an_import_read read, void *user,
                                 char why[AN_IMPORT_WHY]);

typedef enum an_import_mode { AN_IMPORT_TRAIN, AN_IMPORT_EVAL } an_import_mode;
/* Builds the graph. in[], out[]: in the order of AN_IMPORT_INPUT and _OUTPUT; a result that is no tensor is NULL, as is one
 * that the file's program for evaluation lacks. In training buffers take their new values when the step is evaluated.
 * Evaluation takes the file's own program for it; where there is none, the one for training with dropout off and running
 * statistics. */
AN_API an_status an_import_build(an_import_model *m, an_import_mode mode, an_tensor *const *in, an_tensor **out,
                                 char why[AN_IMPORT_WHY]);

/* An array of another program. A step is in elements. */
enum { AN_IMPORT_I8 = 100, AN_IMPORT_I16 }; /* beside an_dtype: dtypes of arrays that are inputs */
typedef struct an_import_array {
    void *data;
    int32_t dtype; /* an_dtype, as PyTorch has it: AN_I64 where it has int64; or one of those above */
    int32_t rank;
    int64_t dim[8], step[8];
} an_import_array;
/* What a call costs beyond the step itself. */
typedef struct an_import_counts {
    int64_t calls, copies, copied_bytes; /* arrays that could not be used where they are */
    int64_t launches, peak_bytes;        /* of the last plan */
} an_import_counts;

/* How the results of `in`, whose shapes are those of AN_IMPORT_INPUT and whose data are not read, will be stored: sets
 * dtype, rank, dim and step of each of out[], in the order of AN_IMPORT_OUTPUT. Nothing runs. */
AN_API an_status an_import_call_plan(an_import_model *m, const an_import_array *in, an_import_array *out,
                                     char why[AN_IMPORT_WHY]);
/* Runs the graph as a function: reads in[], writes out[], stored as an_import_call_plan says or in another
 * order of axes without gaps. Both are read and written in place (an_bind; on cuda `data` are device pointers, on other GPUs
 * a call is refused): an input whose elements are dense
 * in any order of its axes, or one number repeated, is not copied; integers are, as int32, and
 * elements that are not aligned to their size. An input of another dtype than the graph's is refused (AN_E_DTYPE), but
 * integers of 8 to 64 bits stand for each other. A result must not overlap another, nor an input without gaps. A call
 * draws other random numbers than the one before. The context's step ends with it. */
AN_API an_status an_import_call(an_import_model *m, const an_import_array *in, const an_import_array *out,
                                char why[AN_IMPORT_WHY]);
/* Which graph an_import_call and an_import_call_plan run from now on: that for training, unless this says otherwise. */
AN_API void an_import_call_mode(an_import_model *m, an_import_mode mode);
/* The values of a parameter, buffer or lifted constant, by its name in state_dict, are from now on those at a->data. A
 * float tensor in C order, and its dtype, is used there: steps read and write it, and it must stay valid until the
 * context is closed or another array is given. Integers are copied: of a buffer they are read before each
 * an_import_step, and written after it. Parameters lie in blocks: bind those (an_param_find, an_bind_block); here they
 * are refused. AN_E_USAGE: no such tensor, or another shape or dtype. */
AN_API an_status an_import_bind_tensor(an_import_model *m, const char *name, const an_import_array *a,
                                       char why[AN_IMPORT_WHY]);

/* One update of the parameters. Names and formulas are those of PyTorch; zero betas and eps are 0.9, 0.999, 1e-8. */
typedef struct an_import_update {
    const char *optimizer; /* "adamw", "adam" or "sgd" */
    double lr, beta1, beta2, eps, weight_decay, momentum, dampening;
    double clip; /* by the global norm; 0: none */
    int32_t nesterov;
    int64_t t; /* of an_adamw_options */
} an_import_update;
typedef struct an_import_result {
    double loss, norm; /* norm: of the gradients, before clipping; not finite: nothing was updated */
} an_import_result;
/* Forward pass, backward pass from the first result, which is a scalar, clipping and update as one plan, and the
 * buffers' new values. in[] as of an_import_call; its first axis may have another length where the file lets it: those
 * arrays are copied. The other results are not computed. Call it with one `optimizer` in a context. `out` NULL: it is
 * planned, moments are declared, data are not looked at, and nothing runs. */
AN_API an_status an_import_step(an_import_model *m, const an_import_array *in, const an_import_update *update,
                                an_import_result *out, char why[AN_IMPORT_WHY]);
AN_API void an_import_call_counts(const an_import_model *m, an_import_counts *out);

#ifdef __cplusplus
}
#endif
#endif

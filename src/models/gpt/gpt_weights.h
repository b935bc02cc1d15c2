/* gpt_weights.h: a GPT's weights from any file that holds them, and to files that others read.
 *
 * Owns:      names and layouts: nanoGPT's (transformer.h.0.attn.c_attn.weight, matrices [out,in]) and Hugging Face's
 *            GPT-2 (h.0.attn.c_attn.weight, the four matrices of a block [in,out], as its Conv1D keeps them), with and
 *            without "transformer." and "_orig_mod."; the head tied to wte; nanoGPT's ckpt.pt with its optimizer.
 * Does not:  parse files (io/formats/torch_file.h) or touch a context.
 *
 * Every opened file looks like an anneal checkpoint (io/checkpoint.h), whatever wrote it: f32 tensors under nanoGPT's
 * names, [out,in], moments as optimizer.m.NAME and optimizer.v.NAME where the file has them, settings (n_layer, n_head,
 * n_embd, block_size, vocab_size, bias, and nanoGPT's keys that anneal has) as the metadata AN_CKPT_CONFIG, the
 * progress of a ckpt.pt as AN_CKPT_STATE. A missing tensor is an error, and so is an unexpected
 * (unknown) one, which names the nearest known name. */
#ifndef AN_MODELS_GPT_GPT_WEIGHTS_H
#define AN_MODELS_GPT_GPT_WEIGHTS_H

#include "io/formats/safetensors.h"
#include "models/gpt/gpt.h"

/* An anneal checkpoint is opened unchanged. Of Hugging Face's files the number of heads is in the config.json beside
 * them; without one, heads are 64 wide, as in every GPT-2. */
an_status an_gpt_weights_open(an_err *err, const char *path, an_st **out); /* an_st_close */
/* The same of a file that is open already; `raw` is closed with *out, and when this fails. */
an_status an_gpt_weights_import(an_err *err, an_st *raw, an_st **out);

typedef enum an_gpt_layout { AN_GPT_NANOGPT, AN_GPT_HUGGING_FACE } an_gpt_layout;

/* Writes the parameters of an open file of the above, without moments, as safetensors: for Hugging Face's `path` is
 * FOLDER/model.safetensors or any name, and config.json is written beside it. Opened again it has the same bits. */
an_status an_gpt_weights_write(an_err *err, const an_st *st, an_gpt_layout layout, const char *path);

/* The same with the layout by name: "nanogpt" or "hf". */
an_status an_gpt_weights_export(an_err *err, const an_st *st, const char *layout, const char *path);

/* The model settings stored in an opened file; AN_E_IO with a sentence when it has none. */
an_status an_gpt_weights_config(an_err *err, const an_st *st, an_gpt_config *out);

#endif

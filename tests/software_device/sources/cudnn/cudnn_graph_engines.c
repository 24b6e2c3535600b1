// SPDX-License-Identifier: MIT
// Engines of the graph API: which patterns each takes, what it says of itself, and the order in which they are offered.
//
// Traps come first: TF32, an engine that never becomes a plan, jitter,
// transforms, large workspaces. What cuDNN compiles at run time comes last. As cuDNN 9.19 has it, the filter gradients'
// engine 17 is Winograd's and has no note of that.
#include <string.h>
#include "cudnn_graph.h"

enum { COMPILED = 6, COMPILED_TOO = 8, SILENT_WINOGRAD = 17 };

static const struct entry {
   enum family family;
   bool space, tensor_cores, random, no_plan;
   int n_notes;
   cudnnBackendNumericalNote_t notes[2];
} entries[ENGINES] = {
   {PLAIN, .space = true, .tensor_cores = true, .n_notes = 1, .notes = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}},
   {PLAIN, .random = true, .n_notes = 1, .notes = {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}},
   {FFT, .space = true, .n_notes = 1, .notes = {CUDNN_NUMERICAL_NOTE_FFT}},
   {WINOGRAD_NONFUSED, .space = true, .n_notes = 2,
    .notes = {CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4}},
   {PLAIN, .n_notes = 1, .notes = {CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP}},
   {PLAIN, .space = true},
   {PLAIN, .space = true},
   {PLAIN, .no_plan = true},
   {PLAIN, .space = true},
   [SILENT_WINOGRAD] = {WINOGRAD_NONFUSED, .space = true},
};
static const int best[] = {0, 7, 1, 3, 2, SILENT_WINOGRAD, 5, 4, COMPILED, COMPILED_TOO}, fallback[] = {1, 4};

bool engine_takes(const struct pattern *p, int number)
{
   if (number < 0 || number >= ENGINES || !p->known || !setting("STRICT_GRAPHS", 1)) return false;
   if (is_fused(p) && !setting("STRICT_GRAPH_FUSION", 1)) return false;
   if (number > COMPILED_TOO && (number != SILENT_WINOGRAD || p->g.pass != BACKWARD_FILTER)) return false;
   bool is_double = p->g.x.type == CUDNN_DATA_DOUBLE, compiled_only = p->sum || p->at[AT_MASK].used;
   if (engine_is_compiled(number)) {
      if (setting("STRICT_COMPILED", 1) < (number == COMPILED ? 1 : 2)) return false;
      bool layout = !compiled_only || p->layouts & 1u << CUDNN_TENSOR_NHWC;
      return (p->sum || is_fused(p)) && layout && !is_double;
   }
   if (compiled_only || (entries[number].tensor_cores && is_double)) return false;
   return family_takes(&p->g, entries[number].family);
}

bool engine_becomes_plan(int number)
{
   return !entries[number].no_plan;
}

bool engine_is_random(int number)
{
   return entries[number].random;
}

bool engine_is_compiled(int number)
{
   return number == COMPILED || number == COMPILED_TOO;
}

bool engine_uses_tensor_cores(int number)
{
   return entries[number].tensor_cores;
}

size_t engine_workspace(const struct engine *e)
{
   const struct entry *entry = &entries[e->number];
   return entry->space ? family_workspace(&e->pattern.g, entry->family) : 0;
}

int engine_numerical_notes(int number, cudnnBackendNumericalNote_t *notes)
{
   memcpy(notes, entries[number].notes, sizeof entries[number].notes);
   return entries[number].n_notes;
}

int engine_behavior_notes(int number, cudnnBackendBehaviorNote_t *notes)
{
   notes[0] = CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
   return engine_is_compiled(number);
}

st finalize_heuristic(struct part *part)
{
   struct offers *offers = &part->content->offers;
   bool has_device = part_of(part, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP) != NULL;
   if (!has_device && current_device >= device_count())
      return refuse(CUDNN_STATUS_NOT_INITIALIZED, "heuristic: neither device properties nor a device");
   offers->pattern = part_of(part, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)->content->pattern;
   bool few = integer_of(part, CUDNN_ATTR_ENGINEHEUR_MODE, 0) == CUDNN_HEUR_MODE_FALLBACK;
   if (!few && !setting("STRICT_HEURISTICS", 1))
      return refuse(CUDNN_STATUS_INTERNAL_ERROR, "heuristic: failed, by STRICT_HEURISTICS");
   size_t n = few ? sizeof fallback / sizeof *fallback : sizeof best / sizeof *best;
   for (size_t i = 0; i < n; i++) {
      int number = few ? fallback[i] : best[i];
      if (engine_takes(&offers->pattern, number)) offers->numbers[offers->n++] = number;
   }
   return CUDNN_STATUS_SUCCESS;
}

st finalize_engine(struct part *part)
{
   struct engine *e = &part->content->engine;
   e->pattern = part_of(part, CUDNN_ATTR_ENGINE_OPERATION_GRAPH)->content->pattern;
   e->number = (int)integer_of(part, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 0);
   if (engine_takes(&e->pattern, e->number)) return CUDNN_STATUS_SUCCESS;
   return refuse(CUDNN_STATUS_NOT_SUPPORTED, "engine %d does not take this graph", e->number);
}

st finalize_configuration(struct part *part)
{
   part->content->engine = part_of(part, CUDNN_ATTR_ENGINECFG_ENGINE)->content->engine;
   return CUDNN_STATUS_SUCCESS;
}

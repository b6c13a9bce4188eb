/* Saves and loads a small tensor with the installed library: consumer DIRECTORY. */
#include <ckpt/ckpt.h>
#include <stdio.h>
#include <string.h>

static int failed(const char* call) {
  fprintf(stderr, "%s: %s\n", call, ckpt_last_error_json());
  return 1;
}

int main(int argc, char** argv) {
  const uint64_t shape[2] = {3, 5};
  const ckpt_tensor tensor = {.size = sizeof tensor, .name = "w", .dtype = "F32", .shape = shape, .ndim = 2};
  const ckpt_axis axis = {"dp", 1};
  float saved[15];
  float loaded[15] = {0};
  const ckpt_read read = {.size = sizeof read, .name = "w", .out = loaded, .bytes = sizeof loaded};
  ckpt_load_report report = {.size = sizeof report};
  ckpt_run* run = NULL;
  ckpt_model* model = NULL;
  ckpt_save* save = NULL;
  ckpt_pending* pending = NULL;

  if (argc != 2 || ckpt_abi_version() != CKPT_ABI_VERSION) return 2;
  for (int i = 0; i < 15; ++i) saved[i] = (float)i / 3;
  if (ckpt_run_open(argv[1], NULL, &run)) return failed("open");
  if (ckpt_model_new(&axis, 1, &model)) return failed("model");
  if (ckpt_model_tensor(model, &tensor, NULL, 0)) return failed("tensor");
  if (ckpt_run_set_model(run, model)) return failed("set_model");
  ckpt_model_free(model);
  if (ckpt_begin(run, 7, &save)) return failed("begin");
  if (ckpt_add(save, "w", saved, sizeof saved)) return failed("add");
  if (ckpt_commit(save, &pending)) return failed("commit");
  if (ckpt_wait(pending, 60000)) return failed("wait");
  ckpt_pending_free(pending);
  if (ckpt_load(run, &read, 1, CKPT_STRICT, &report)) return failed("load");
  if (ckpt_run_close(run)) return failed("close");
  if (report.step != 7 || memcmp(saved, loaded, sizeof saved) != 0) return 3;
  puts("saved and loaded");
  return 0;
}

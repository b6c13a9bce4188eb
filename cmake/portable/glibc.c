// What our code, libstdc++ and libgcc take from glibc 2.32 to 2.36, for programs that run with glibc 2.31 too.
// Hidden: nothing but the file that links this uses it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <locale.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/single_threaded.h>
#include <unistd.h>

#pragma GCC visibility push(hidden)

// glibc 2.32, read by libstdc++: 0 makes reference counts atomic at all times.
char __libc_single_threaded = 0;

// glibc 2.32: the English text of an error.
const char* strerrordesc_np(int code) {
  static locale_t english;
  locale_t made = __atomic_load_n(&english, __ATOMIC_ACQUIRE);
  if (made == (locale_t)0) {
    locale_t none = (locale_t)0;
    made = newlocale(LC_ALL_MASK, "C", (locale_t)0);  // glibc's C locale is static: nothing to free
    if (made == (locale_t)0) return NULL;
    __atomic_compare_exchange_n(&english, &none, made, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  }
  const char* text = strerror_l(code, made);
  return strncmp(text, "Unknown error", 13) == 0 ? NULL : text;
}

// glibc 2.36, called by std::random_device.
uint32_t arc4random(void) {
  uint32_t number = 0;
  if (getentropy(&number, sizeof number) != 0) abort();  // without a kernel that has getrandom
  return number;
}

struct search {
  uintptr_t pc;
  struct dl_find_object* found;
};

static int holds(struct dl_phdr_info* object, size_t size, void* user) {
  (void)size;
  struct search* search = user;
  uintptr_t begin = UINTPTR_MAX;
  uintptr_t end = 0;
  void* frames = NULL;
  int here = 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)* part = &object->dlpi_phdr[i];
    const uintptr_t address = object->dlpi_addr + part->p_vaddr;
    if (part->p_type == PT_GNU_EH_FRAME) frames = (void*)address;
    if (part->p_type != PT_LOAD) continue;
    if (address < begin) begin = address;
    if (address + part->p_memsz > end) end = address + part->p_memsz;
    if (search->pc >= address && search->pc < address + part->p_memsz) here = 1;
  }
  if (!here || frames == NULL) return 0;
  search->found->dlfo_flags = 0;
  search->found->dlfo_map_start = (void*)begin;
  search->found->dlfo_map_end = (void*)end;
  search->found->dlfo_link_map = NULL;  // libgcc does not read it
  search->found->dlfo_eh_frame = frames;
  return 1;
}

// glibc 2.35, called by libgcc for each frame that an exception passes.
int _dl_find_object(void* pc, struct dl_find_object* result) {
  struct search search = {(uintptr_t)pc, result};
  return dl_iterate_phdr(holds, &search) == 1 ? 0 : -1;
}

#pragma GCC visibility pop

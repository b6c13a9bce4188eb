#include "format/files/extra_names.hpp"

#include <gtest/gtest.h>

namespace ckpt {
namespace {

TEST(ExtraNames, FilesOfAModelAreKnown) {
  for (const char* name :
       {"config.json", "tokenizer.json", "tokenizer.model", "merges.txt", "chat_template.jinja", "modeling_custom.py",
        "LICENSE", "LICENSE.txt", "README.md", "training_args.bin", "additional_chat_templates/tool_use.jinja"})
    EXPECT_TRUE(is_extra_name(name)) << name;
}

TEST(ExtraNames, WeightsPathsAndOurOwnFilesAreNone) {
  for (const char* name :
       {"model.safetensors", "pytorch_model.bin", "optimizer.pt", "model.safetensors.index.json", "manifest.json",
        "../config.json", "/etc/config.json", "sub/config.json", "./config.json", "config.json/", "", ".hidden.json",
        "additional_chat_templates/../x.jinja", "additional_chat_templates/x.py", "zero_to_fp32.py"})
    EXPECT_FALSE(is_extra_name(name)) << name;
}

}  // namespace
}  // namespace ckpt

#include "/work/main/cli/commands/trash_list.hpp"

#include "/work/main/cli/commands/commands.hpp"

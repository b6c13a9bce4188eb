#include "format/box.hpp"

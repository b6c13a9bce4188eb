#include "format/value.hpp"

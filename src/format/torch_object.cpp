#include "format/torch_object.hpp"

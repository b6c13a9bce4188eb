#include "api/verbs.hpp"

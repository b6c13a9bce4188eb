#include "convert/torch_archive.hpp"

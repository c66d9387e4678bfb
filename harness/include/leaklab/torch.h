// The parts of LibTorch that scenarios use, and what is precompiled: all of torch/torch.h would
// double the time that a scenario takes to compile. A scenario that needs more includes it.
#pragma once

#include <torch/autograd.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

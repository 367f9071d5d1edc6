// Rows of [run], [optimizer], [schedule], [data], [checkpoint], [log] and [fault].
#include "config/settings_rows.hpp"

namespace trireme {

std::vector<Setting> run_rows() {
  const FieldOf of(&Settings::run);
  return {
      {.name = "run.directory",
       .field = of(&RunSettings::directory),
       .derived = "runs/ and the name of the deck",
       .effect = SettingEffect::layout,
       .help =
           "Where the resolved deck, metrics.jsonl and checkpoints go; a run resumes from here."},
      {.name = "run.steps",
       .field = of(&RunSettings::steps),
       .unit = "steps",
       .range = {0, kMostSteps},
       .required = true,
       .effect = SettingEffect::layout,
       .help = "Updates of the whole run, those before a resume included."},
      {.name = "run.seed",
       .field = of(&RunSettings::seed),
       .range = {0, 9007199254740991},
       .help = "Address of initial weights, dropout and the order of data."},
      {.name = "run.evaluate_every",
       .field = of(&RunSettings::evaluate_every),
       .unit = "steps",
       .range = {0, kMostSteps},
       .derived = "never",
       .effect = SettingEffect::layout,
       .help = "Validation loss after every so many steps and after the last. Training is not "
               "disturbed."},
      {.name = "run.evaluate_batches",
       .field = of(&RunSettings::evaluate_batches),
       .unit = "global batches",
       .range = {0, kMostSteps},
       .effect = SettingEffect::layout,
       .help = "Validation batches of each evaluation, the same ones every time. 0: the whole "
               "validation part, once (order random: as many windows as it has room for)."},
  };
}

std::vector<Setting> optimizer_rows() {
  const FieldOf of(&Settings::optimizer);
  return {
      {.name = "optimizer.learning_rate",
       .field = of(&OptimizerSettings::learning_rate),
       .range = {0, 1000},
       .help = "Largest learning rate of the schedule (AdamW)."},
      {.name = "optimizer.weight_decay",
       .field = of(&OptimizerSettings::weight_decay),
       .range = {0, 1000},
       .help = "Decoupled, on matrices and tables only: not on biases and gains."},
      {.name = "optimizer.beta1",
       .field = of(&OptimizerSettings::beta1),
       .range = {.low = 0, .high = 1, .open_high = true},
       .help = "Decay of the first moment."},
      {.name = "optimizer.beta2",
       .field = of(&OptimizerSettings::beta2),
       .range = {.low = 0, .high = 1, .open_high = true},
       .help = "Decay of the second moment."},
      {.name = "optimizer.epsilon",
       .field = of(&OptimizerSettings::epsilon),
       .range = {.low = 0, .high = 1, .open_low = true},
       .help = "Added to the root of the second moment."},
      {.name = "optimizer.clip",
       .field = of(&OptimizerSettings::clip),
       .range = {0, 1e30},
       .help = "Gradients are scaled down to this norm over all parameters; 0: off."},
      {.name = "optimizer.zero",
       .field = of(&OptimizerSettings::zero),
       .range = {0, 1},
       .effect = SettingEffect::layout,
       .help = "1: master weights and moments are split over dp (ZeRO-1). 0: each rank has them "
               "whole."},
      {.name = "optimizer.bucket",
       .field = of(&OptimizerSettings::bucket),
       .unit = "elements",
       .range = {1, 1099511627776},
       .effect = SettingEffect::layout,
       .help =
           "Gradients are reduced in pieces of at least so many elements, whole layers at a time."},
  };
}

std::vector<Setting> schedule_rows() {
  const FieldOf of(&Settings::schedule);
  return {
      {.name = "schedule.kind",
       .field = of(&ScheduleSettings::kind),
       .choices = {"constant", "linear", "cosine", "wsd", "inverse_square_root"},
       .help = "Learning rate after the warm-up. wsd: constant, then down over wsd_decay."},
      {.name = "schedule.warmup",
       .field = of(&ScheduleSettings::warmup),
       .unit = "steps of batch.global",
       .range = {0, kMostSteps},
       .help = "Linear rise. The first update uses the rate `initial`, so from 0 it moves nothing, "
               "as in "
               "Megatron-LM."},
      {.name = "schedule.decay",
       .field = of(&ScheduleSettings::decay),
       .unit = "steps of batch.global",
       .range = {0, kMostSteps},
       .derived = "the length of the run",
       .help =
           "Where the rate reaches `minimum`, counted from the start; constant from there. A run "
           "that is resumed with more steps keeps the length recorded unless this key is given. "
           "Counted in sequences, so a ramp of the batch does not bend the curve."},
      {.name = "schedule.minimum",
       .field = of(&ScheduleSettings::minimum),
       .range = {0, 1000},
       .help = "Lowest learning rate after the warm-up."},
      {.name = "schedule.initial",
       .field = of(&ScheduleSettings::initial),
       .range = {0, 1000},
       .help = "Learning rate at the start of the warm-up."},
      {.name = "schedule.wsd_decay",
       .field = of(&ScheduleSettings::wsd_decay),
       .unit = "steps of batch.global",
       .range = {0, kMostSteps},
       .only_with = "schedule.kind = wsd",
       .help = "Length of the last phase of wsd; it ends at `decay`."},
      {.name = "schedule.wsd_kind",
       .field = of(&ScheduleSettings::wsd_kind),
       .choices = {"linear", "cosine", "exponential", "minus_sqrt"},
       .only_with = "schedule.kind = wsd",
       .help = "Shape of the last phase of wsd."},
      {.name = "schedule.resume",
       .field = of(&ScheduleSettings::resume),
       .choices = {"same", "keep", "replace"},
       .effect = SettingEffect::layout,
       .help =
           "Where a state is loaded whose schedule (rates, and lengths in sequences) is not the "
           "deck's. same: that is an error. keep: the loaded one is used. replace: all of the "
           "deck's is used, from where the run stands."},
  };
}

std::vector<Setting> data_rows() {
  const FieldOf of(&Settings::data);
  return {
      {.name = "data.kind",
       .field = of(&DataSettings::kind),
       .choices = {"mock", "indexed"},
       .help = "mock: generated tokens, as Megatron-LM's --mock-data. indexed: .bin/.idx pairs, as "
               "Megatron-LM or `trireme tokenize` write them, and token files of llm.c."},
      {.name = "data.path",
       .field = of(&DataSettings::path),
       .only_with = "data.kind = indexed",
       .help = "Path of the pair without .bin and .idx, or a blend: 0.3 A 0.7 B (weights), A B "
               "(by size), or @FILE with such words or Megatron's JSON of parts."},
      {.name = "data.train_path",
       .field = of(&DataSettings::train_path),
       .only_with = "data.kind = indexed",
       .help = "Instead of data.path: the datasets or blend that training reads, whole."},
      {.name = "data.validation_path",
       .field = of(&DataSettings::validation_path),
       .only_with = "data.kind = indexed",
       .help = "With data.train_path: the datasets or blend that validation reads, whole."},
      {.name = "data.validation_sets",
       .field = of(&DataSettings::validation_sets),
       .derived = "none",
       .only_with = "data.kind = indexed",
       .effect = SettingEffect::layout,
       .help = "More validation sets, each with a loss of its own: web: A; code: 0.5 B 0.5 C."},
      {.name = "data.split",
       .field = of(&DataSettings::split),
       .only_with = "data.kind = indexed",
       .help = "Weights of training, validation and test part, as 969,30,1 or 0.9,0.1."},
      {.name = "data.order",
       .field = of(&DataSettings::order),
       .choices = {"megatron", "random"},
       .only_with = "data.kind = indexed",
       .help =
           "megatron: Megatron-LM's shuffled documents, parts cut by documents. random: windows at "
           "uniform random positions, parts cut by token position."},
      {.name = "data.eod",
       .field = of(&DataSettings::eod),
       .unit = "token id",
       .range = {-1, 2147483646},
       .derived = "none",
       .help = "Token that ends a document; 256 for the bytes tokenizer."},
      {.name = "data.eod_mask_loss",
       .field = of(&DataSettings::eod_mask_loss),
       .help = "Leaves the loss at positions that hold data.eod out."},
      {.name = "data.loss_mask",
       .field = of(&DataSettings::loss_mask),
       .only_with = "data.kind = indexed",
       .help = "Only the tokens count that PATH.mask marks, as `trireme tokenize --prompt-key` "
               "writes it."},
      {.name = "data.reset_positions",
       .field = of(&DataSettings::reset_positions),
       .help = "Positions start from 0 again behind each data.eod, as Megatron-LM's "
               "--reset-position-ids."},
      {.name = "data.reset_attention",
       .field = of(&DataSettings::reset_attention),
       .help = "Tokens attend to their own document only, which ends with its data.eod, as "
               "Megatron-LM's --reset-attention-mask."},
      {.name = "data.tokenizer",
       .field = of(&DataSettings::tokenizer),
       .derived = "not said",
       .effect = SettingEffect::layout,
       .help = "Name or path of what made the data, as of `trireme tokenize`; for generate and "
               "eval."},
  };
}

std::vector<Setting> checkpoint_rows() {
  const FieldOf of(&Settings::checkpoint);
  constexpr auto kLayout = SettingEffect::layout;
  return {
      {.name = "checkpoint.every",
       .field = of(&CheckpointSettings::every),
       .unit = "steps",
       .range = {0, kMostSteps},
       .derived = "only after the last step",
       .effect = kLayout,
       .help = "A checkpoint after every so many steps and after the last."},
      {.name = "checkpoint.keep",
       .field = of(&CheckpointSettings::keep),
       .unit = "files",
       .range = {0, 1000000},
       .effect = kLayout,
       .help = "Older ones are removed once a newer one is safe; 0 keeps all."},
      {.name = "checkpoint.load",
       .field = of(&CheckpointSettings::load),
       .effect = kLayout,
       .help = "Start from this file. A checkpoint in the run directory goes first."},
      {.name = "checkpoint.load_optimizer",
       .field = of(&CheckpointSettings::load_optimizer),
       .effect = kLayout,
       .help = "With load: take moments, step and consumed samples too. false: weights only, from "
               "step 0."},
      {.name = "checkpoint.asynchronous",
       .field = of(&CheckpointSettings::asynchronous),
       .effect = kLayout,
       .help = "Training pauses for a copy in host memory, which is written while it goes on. "
               "false: it waits for the disk."},
      {.name = "checkpoint.memory",
       .field = of(&CheckpointSettings::memory),
       .unit = "MiB",
       .range = {0, 1 << 30},
       .derived = "what the state of a rank needs",
       .only_with = "checkpoint.asynchronous = true",
       .effect = kLayout,
       .help = "Most page-locked host memory of a rank for that copy. What exceeds it is written "
               "during the pause."},
      {.name = "checkpoint.retries",
       .field = of(&CheckpointSettings::retries),
       .range = {0, 1000000},
       .effect = kLayout,
       .help = "So many failed saves in a row are warnings; one more ends the job with exit code "
               "74."},
      {.name = "checkpoint.retry_after",
       .field = of(&CheckpointSettings::retry_after),
       .unit = "seconds",
       .range = {0, 1e6},
       .effect = kLayout,
       .help = "A failed save is tried again after this time."},
      {.name = "checkpoint.alignment",
       .field = of(&CheckpointSettings::alignment),
       .unit = "KiB",
       .range = {0, 1024},
       .derived = "by the size of the file",
       .effect = kLayout,
       .help =
           "Where large tensors start in the file: a power of two from 4 on, such as the stripe "
           "of the file system."},
      {.name = "checkpoint.stripes",
       .field = of(&CheckpointSettings::stripes),
       .unit = "storage targets",
       .range = {-1, 65534},
       .derived = "as the file system has it",
       .effect = kLayout,
       .help =
           "Lustre: over how many targets a checkpoint is spread, in stripes of 1 MiB; -1: all."},
      {.name = "checkpoint.direct",
       .field = of(&CheckpointSettings::direct),
       .effect = kLayout,
       .help = "Large pieces of a checkpoint are written past the page cache (O_DIRECT), where the "
               "file system can: a save takes no host memory for it."},
  };
}

std::vector<Setting> log_rows() {
  const FieldOf of(&Settings::log);
  constexpr auto kLayout = SettingEffect::layout;
  return {
      {.name = "log.level",
       .field = of(&LogSettings::level),
       .choices = {"error", "warning", "info", "debug"},
       .effect = kLayout,
       .help = "Least important lines that are printed."},
      {.name = "log.every",
       .field = of(&LogSettings::every),
       .unit = "steps",
       .range = {1, kMostSteps},
       .effect = kLayout,
       .help = "A status line every so many steps. metrics.jsonl has every step."},
      {.name = "log.gradients_at",
       .field = of(&LogSettings::gradients_at),
       .unit = "step",
       .range = {0, kMostSteps},
       .derived = "never",
       .effect = kLayout,
       .help = "Writes the whole gradients of this step (from 1) to the run directory, to compare "
               "layouts."},
      {.name = "log.samples",
       .field = of(&LogSettings::samples),
       .effect = kLayout,
       .help = "Every rank that reads data writes the numbers of its samples, and sums over their "
               "tokens, to samples/ in the run directory."},
  };
}

std::vector<Setting> fault_rows() {
  const FieldOf of(&Settings::fault);
  constexpr auto kLayout = SettingEffect::layout;
  return {
      {.name = "fault.deadline",
       .field = of(&FaultSettings::deadline),
       .unit = "seconds",
       .range = {0, 1e7},
       .derived = "off",
       .effect = kLayout,
       .help =
           "A step, a batch of an evaluation or a save that takes longer ends the job with exit "
           "code 76."},
      {.name = "fault.grace",
       .field = of(&FaultSettings::grace),
       .unit = "seconds",
       .range = {0, 1e7},
       .effect = kLayout,
       .help = "Time between SIGTERM and SIGKILL of the launcher (mpirun: 2). On SIGTERM or SIGINT "
               "no save is started where the last one took longer. SIGUSR1 always saves."},
      {.name = "fault.stop_before",
       .field = of(&FaultSettings::stop_before),
       .unit = "seconds",
       .range = {0, 1e7},
       .effect = kLayout,
       .help =
           "Save and end with 75 so long before the end of the job, or earlier where saves take "
           "long. The end is TRIREME_DEADLINE (seconds since 1970), SLURM_JOB_END_TIME or what "
           "squeue says. 0: do not ask."},
      {.name = "fault.check_network",
       .field = of(&FaultSettings::check_network),
       .effect = kLayout,
       .help = "At the start, each host calls every other one by TCP on the interface that NCCL "
               "will use; pairs that do not answer within 5 s are named."},
      {.name = "fault.check_links",
       .field = of(&FaultSettings::check_links),
       .effect = kLayout,
       .help =
           "At the start, measure each link between neighbours of an axis and each rank's speed "
           "for some seconds; slow ones are named. `trireme bench comm` does it in full."},
      {.name = "fault.check_replicas",
       .field = of(&FaultSettings::check_replicas),
       .unit = "steps",
       .range = {0, kMostSteps},
       .derived = "never",
       .effect = kLayout,
       .help = "Compares values that several ranks must hold alike; a difference ends the job with "
               "70."},
      {.name = "fault.skip_limit",
       .field = of(&FaultSettings::skip_limit),
       .unit = "steps",
       .range = {1, kMostSteps},
       .effect = kLayout,
       .help = "A step with a non-finite loss or gradient is skipped; so many in a row end the job "
               "with 70."},
      {.name = "fault.hours_between_failures",
       .field = of(&FaultSettings::hours_between_failures),
       .unit = "hours",
       .range = {0, 1e9},
       .derived = "50000 / ranks",
       .effect = kLayout,
       .help = "Mean time between failures of the whole job, for the advice how often to save. The "
               "default is near what Meta saw with Llama 3 405B on 16384 GPUs."},
  };
}

}  // namespace trireme

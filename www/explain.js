// Errors in plain words. What the engine says itself follows, since it names the file, tensor or limit.

const WORDS = {
  NotGguf: 'This is not a GGUF file.',
  Malformed: 'The file is damaged or incomplete; download it again.',
  UnsupportedArchitecture: 'This kind of model is not supported yet.',
  MissingKey: 'The file lacks information the model needs.',
  BadValue: 'The file holds a setting that cannot be used.',
  MissingTensor: 'The file lacks a part of the model.',
  BadTensor: 'A part of the model has a form that is not supported.',
  OutOfRange: 'The file ends too early; download it again.',
  Tokenizer: 'The vocabulary in the file cannot be used.',
  Io: 'The file could not be read; pick it again.',
  Http: 'The file could not be downloaded. The other site may be down, or may not allow this page to read from it (CORS).',
  RangeIgnored: 'The site does not send parts of files; download the file and pick it here.',
  ContextFull: 'The chat has grown longer than the model can read; start a new one.',
  BadToken: 'The text holds something this model has no word for.',
  BadOption: 'A setting is outside its range.',
  BadArgument: 'What was entered cannot be used.',
  NoAdapter: 'No usable GPU was found; choose the CPU.',
  OutOfDeviceMemory: 'The model does not fit the GPU; take a smaller one, or the CPU.',
  Device: 'The GPU stopped working; load the model again.',
  RingFull: 'The GPU was given too much at once; load the model again.',
  UnexpectedReadback: 'The GPU was read from at the wrong time; load the model again.',
  NotFinite: 'The numbers of this model overflow, so its answer would be gibberish; take another file of it.',
  NoCandidate: 'No token is left that could be drawn; change the settings.',
  SelfTest: 'This GPU or its driver computes wrongly; choose the CPU.',
  Template: 'The chat template of this model could not be applied.',
  Superseded: 'Another answer was begun before this one ended.',
  Cancelled: 'It was cancelled.',
  Disposed: 'The model has been unloaded; load it again.',
  WorkerCrashed: 'The engine stopped unexpectedly; load the model again.',
};

export function explain(error) {
  const words = WORDS[error?.code];
  const detail = error?.message ?? String(error);
  return words ? `${words} (${detail})` : `Something went wrong: ${detail}`;
}

mod cm;
mod emit;
mod hostile;
mod lan;
mod samples;
mod tables;
mod vectors;

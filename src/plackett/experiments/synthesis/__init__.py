"""What none of the papers has: where does the exact treatment of ties pay, and in which kind of model?

models       the losses in linear, neural and tree models, by one protocol
differences  each loss against the exact likelihood: paired differences and tests
simulation   lists whose truth is known
real         MQ2008 and the sample of MSLR-WEB10K
"""

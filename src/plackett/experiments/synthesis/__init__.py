"""Our own experiments, not in any of the papers: where does exact treatment of ties pay, and in which models?

fitted_models  fit every loss in linear, neural and tree models, under one protocol
differences    compare each loss with the exact likelihood: paired differences and tests
simulation     simulated lists with known true scores
real           MQ2008 and the sample of MSLR-WEB10K

Start with `fitted_models`. May import anything below `cli`.
"""

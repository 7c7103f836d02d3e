def trainer_init(info): return None

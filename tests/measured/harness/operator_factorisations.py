"""Since seed 13021: factorisations of one matrix, small and large, and of several; recurrent layers and pairs."""
from operator_list import of

FACTORISATIONS = """
    cholesky: torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device)))
    cholesky_upper: torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device)), upper=True)
    solve: torch.linalg.solve((p.float() + 40 * torch.eye(p.size(-1), device=p.device)), p.float()[..., :5])
    solve_right: torch.linalg.solve((p.float() + 40 * torch.eye(p.size(-1), device=p.device)), p.float()[..., :5, :], left=False)
    inv: torch.linalg.inv((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))
    det: torch.linalg.det((p.float() + 40 * torch.eye(p.size(-1), device=p.device)) / 40)
    slogdet: torch.linalg.slogdet((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))[1]
    logdet: torch.logdet((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))
    eigh: sum(x.square().mean() for x in torch.linalg.eigh((p.float() + 40 * torch.eye(p.size(-1), device=p.device))))
    eigh_vectors: torch.linalg.eigh((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))[1]
    eigvalsh: torch.linalg.eigvalsh((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))
    qr: torch.linalg.qr(p.float())[0]
    qr_thin: sum(x.square().mean() for x in torch.linalg.qr(p.float()[..., :9]))
    svd: sum(x.square().mean() for x in torch.linalg.svd(p.float()[..., :12], full_matrices=False))
    svd_square: torch.linalg.svd(p.float(), full_matrices=False)[0]
    svdvals: torch.linalg.svdvals(p.float()[..., :12, :])
    cholesky_solve: torch.cholesky_solve(p.float()[..., :3], torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device))))
    cholesky_inverse: torch.cholesky_inverse(torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device))))
    triangular: torch.linalg.solve_triangular((p.float() + 40 * torch.eye(p.size(-1), device=p.device)).tril(), p.float()[..., :6], upper=False)
    triangular_right: torch.linalg.solve_triangular((p.float() + 40 * torch.eye(p.size(-1), device=p.device)).triu(), p.float()[..., :6, :], upper=True, left=False)
    matrix_exp: torch.linalg.matrix_exp(p.float() * 0.01)
    pinv: torch.linalg.pinv(p.float()[..., :12])
    lstsq: torch.linalg.lstsq(p.float()[..., :12], p.float()[..., 12:14]).solution
    lu_factor: torch.linalg.lu_factor((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))[0]
"""
for size, sides, how_many in (("small", "hh", "one"), ("large", "ll", "one"), ("batch", "nhh", "several"), ("stack", "nll", "several, large")):
    of(f"factorisations of 13021: {how_many}", {"p": sides}, "\n".join(f"{size}_{line.strip()}" for line in FACTORISATIONS.strip().splitlines()))

of("layers of 13021", {"p": "nld"}, """
    lstm_no_bias: M: nn.LSTM({d}, 80, bias=False, batch_first=True): self.m(p)[0]
    lstm_no_bias_both: M: nn.LSTM({d}, 48, 2, bias=False, bidirectional=True): self.m(p)[0]
    lstm_projection_deep: M: nn.LSTM({d}, 96, 2, proj_size=32, batch_first=True): self.m(p)[0]
    lstm_projection_both: M: nn.LSTM({d}, 64, proj_size=24, bidirectional=True): self.m(p)[0]
    gru_no_bias: M: nn.GRU({d}, 72, bias=False): self.m(p)[0]
    rnn_no_bias: M: nn.RNN({d}, 72, bias=False): self.m(p)[0]
    bilinear_pairs: M: nn.Bilinear({d}, {d}, 12): self.m(p, p.flip(1))
    bilinear_no_bias: M: nn.Bilinear({d}, {d}, 7, bias=False): self.m(p[:, :9], p[:, 9:18])
    bilinear_one: M: nn.Bilinear({d}, 20, 5): self.m(p, p[..., :20])
""")

"""Since seed 13021: factorisations of one matrix, small and large, and of several; recurrent layers and pairs."""
from operator_list import of

of("factorisations of 13021: one", {"p": "hh"}, """
    small_cholesky: torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device)))
    small_cholesky_upper: torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device)), upper=True)
    small_solve: torch.linalg.solve((p.float() + 40 * torch.eye(p.size(-1), device=p.device)), p.float()[..., :5])
    small_solve_right: torch.linalg.solve((p.float() + 40 * torch.eye(p.size(-1), device=p.device)), p.float()[..., :5, :], left=False)
    small_inv: torch.linalg.inv((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))
    small_det: torch.linalg.det((p.float() + 40 * torch.eye(p.size(-1), device=p.device)) / 40)
    small_slogdet: torch.linalg.slogdet((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))[1]
    small_logdet: torch.logdet((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))
    small_eigh: sum(x.square().mean() for x in torch.linalg.eigh((p.float() + 40 * torch.eye(p.size(-1), device=p.device))))
    small_eigh_vectors: torch.linalg.eigh((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))[1]
    small_eigvalsh: torch.linalg.eigvalsh((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))
    small_qr: torch.linalg.qr(p.float())[0]
    small_qr_thin: sum(x.square().mean() for x in torch.linalg.qr(p.float()[..., :9]))
    small_svd: sum(x.square().mean() for x in torch.linalg.svd(p.float()[..., :12], full_matrices=False))
    small_svd_square: torch.linalg.svd(p.float(), full_matrices=False)[0]
    small_svdvals: torch.linalg.svdvals(p.float()[..., :12, :])
    small_cholesky_solve: torch.cholesky_solve(p.float()[..., :3], torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device))))
    small_cholesky_inverse: torch.cholesky_inverse(torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device))))
    small_triangular: torch.linalg.solve_triangular((p.float() + 40 * torch.eye(p.size(-1), device=p.device)).tril(), p.float()[..., :6], upper=False)
    small_triangular_right: torch.linalg.solve_triangular((p.float() + 40 * torch.eye(p.size(-1), device=p.device)).triu(), p.float()[..., :6, :], upper=True, left=False)
    small_matrix_exp: torch.linalg.matrix_exp(p.float() * 0.01)
    small_pinv: torch.linalg.pinv(p.float()[..., :12])
    small_lstsq: torch.linalg.lstsq(p.float()[..., :12], p.float()[..., 12:14]).solution
    small_lu_factor: torch.linalg.lu_factor((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))[0]
""")
of("factorisations of 13021: one", {"p": "ll"}, """
    large_cholesky: torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device)))
    large_cholesky_upper: torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device)), upper=True)
    large_solve: torch.linalg.solve((p.float() + 40 * torch.eye(p.size(-1), device=p.device)), p.float()[..., :5])
    large_solve_right: torch.linalg.solve((p.float() + 40 * torch.eye(p.size(-1), device=p.device)), p.float()[..., :5, :], left=False)
    large_inv: torch.linalg.inv((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))
    large_det: torch.linalg.det((p.float() + 40 * torch.eye(p.size(-1), device=p.device)) / 40)
    large_slogdet: torch.linalg.slogdet((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))[1]
    large_logdet: torch.logdet((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))
    large_eigh: sum(x.square().mean() for x in torch.linalg.eigh((p.float() + 40 * torch.eye(p.size(-1), device=p.device))))
    large_eigh_vectors: torch.linalg.eigh((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))[1]
    large_eigvalsh: torch.linalg.eigvalsh((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))
    large_qr: torch.linalg.qr(p.float())[0]
    large_qr_thin: sum(x.square().mean() for x in torch.linalg.qr(p.float()[..., :9]))
    large_svd: sum(x.square().mean() for x in torch.linalg.svd(p.float()[..., :12], full_matrices=False))
    large_svd_square: torch.linalg.svd(p.float(), full_matrices=False)[0]
    large_svdvals: torch.linalg.svdvals(p.float()[..., :12, :])
    large_cholesky_solve: torch.cholesky_solve(p.float()[..., :3], torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device))))
    large_cholesky_inverse: torch.cholesky_inverse(torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device))))
    large_triangular: torch.linalg.solve_triangular((p.float() + 40 * torch.eye(p.size(-1), device=p.device)).tril(), p.float()[..., :6], upper=False)
    large_triangular_right: torch.linalg.solve_triangular((p.float() + 40 * torch.eye(p.size(-1), device=p.device)).triu(), p.float()[..., :6, :], upper=True, left=False)
    large_matrix_exp: torch.linalg.matrix_exp(p.float() * 0.01)
    large_pinv: torch.linalg.pinv(p.float()[..., :12])
    large_lstsq: torch.linalg.lstsq(p.float()[..., :12], p.float()[..., 12:14]).solution
    large_lu_factor: torch.linalg.lu_factor((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))[0]
""")
of("factorisations of 13021: several", {"p": "nhh"}, """
    batch_cholesky: torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device)))
    batch_cholesky_upper: torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device)), upper=True)
    batch_solve: torch.linalg.solve((p.float() + 40 * torch.eye(p.size(-1), device=p.device)), p.float()[..., :5])
    batch_solve_right: torch.linalg.solve((p.float() + 40 * torch.eye(p.size(-1), device=p.device)), p.float()[..., :5, :], left=False)
    batch_inv: torch.linalg.inv((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))
    batch_det: torch.linalg.det((p.float() + 40 * torch.eye(p.size(-1), device=p.device)) / 40)
    batch_slogdet: torch.linalg.slogdet((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))[1]
    batch_logdet: torch.logdet((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))
    batch_eigh: sum(x.square().mean() for x in torch.linalg.eigh((p.float() + 40 * torch.eye(p.size(-1), device=p.device))))
    batch_eigh_vectors: torch.linalg.eigh((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))[1]
    batch_eigvalsh: torch.linalg.eigvalsh((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))
    batch_qr: torch.linalg.qr(p.float())[0]
    batch_qr_thin: sum(x.square().mean() for x in torch.linalg.qr(p.float()[..., :9]))
    batch_svd: sum(x.square().mean() for x in torch.linalg.svd(p.float()[..., :12], full_matrices=False))
    batch_svd_square: torch.linalg.svd(p.float(), full_matrices=False)[0]
    batch_svdvals: torch.linalg.svdvals(p.float()[..., :12, :])
    batch_cholesky_solve: torch.cholesky_solve(p.float()[..., :3], torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device))))
    batch_cholesky_inverse: torch.cholesky_inverse(torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device))))
    batch_triangular: torch.linalg.solve_triangular((p.float() + 40 * torch.eye(p.size(-1), device=p.device)).tril(), p.float()[..., :6], upper=False)
    batch_triangular_right: torch.linalg.solve_triangular((p.float() + 40 * torch.eye(p.size(-1), device=p.device)).triu(), p.float()[..., :6, :], upper=True, left=False)
    batch_matrix_exp: torch.linalg.matrix_exp(p.float() * 0.01)
    batch_pinv: torch.linalg.pinv(p.float()[..., :12])
    batch_lstsq: torch.linalg.lstsq(p.float()[..., :12], p.float()[..., 12:14]).solution
    batch_lu_factor: torch.linalg.lu_factor((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))[0]
""")
of("factorisations of 13021: several, large", {"p": "nll"}, """
    stack_cholesky: torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device)))
    stack_cholesky_upper: torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device)), upper=True)
    stack_solve: torch.linalg.solve((p.float() + 40 * torch.eye(p.size(-1), device=p.device)), p.float()[..., :5])
    stack_solve_right: torch.linalg.solve((p.float() + 40 * torch.eye(p.size(-1), device=p.device)), p.float()[..., :5, :], left=False)
    stack_inv: torch.linalg.inv((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))
    stack_det: torch.linalg.det((p.float() + 40 * torch.eye(p.size(-1), device=p.device)) / 40)
    stack_slogdet: torch.linalg.slogdet((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))[1]
    stack_logdet: torch.logdet((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))
    stack_eigh: sum(x.square().mean() for x in torch.linalg.eigh((p.float() + 40 * torch.eye(p.size(-1), device=p.device))))
    stack_eigh_vectors: torch.linalg.eigh((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))[1]
    stack_eigvalsh: torch.linalg.eigvalsh((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))
    stack_qr: torch.linalg.qr(p.float())[0]
    stack_qr_thin: sum(x.square().mean() for x in torch.linalg.qr(p.float()[..., :9]))
    stack_svd: sum(x.square().mean() for x in torch.linalg.svd(p.float()[..., :12], full_matrices=False))
    stack_svd_square: torch.linalg.svd(p.float(), full_matrices=False)[0]
    stack_svdvals: torch.linalg.svdvals(p.float()[..., :12, :])
    stack_cholesky_solve: torch.cholesky_solve(p.float()[..., :3], torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device))))
    stack_cholesky_inverse: torch.cholesky_inverse(torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device))))
    stack_triangular: torch.linalg.solve_triangular((p.float() + 40 * torch.eye(p.size(-1), device=p.device)).tril(), p.float()[..., :6], upper=False)
    stack_triangular_right: torch.linalg.solve_triangular((p.float() + 40 * torch.eye(p.size(-1), device=p.device)).triu(), p.float()[..., :6, :], upper=True, left=False)
    stack_matrix_exp: torch.linalg.matrix_exp(p.float() * 0.01)
    stack_pinv: torch.linalg.pinv(p.float()[..., :12])
    stack_lstsq: torch.linalg.lstsq(p.float()[..., :12], p.float()[..., 12:14]).solution
    stack_lu_factor: torch.linalg.lu_factor((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))[0]
""")
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

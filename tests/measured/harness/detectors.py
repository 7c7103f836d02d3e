"""torchvision's detectors (0.26) on a card with the numbers that memcalc's policies say (python/memcalc/record/_targets.py): which
anchors match, what suppression keeps and on which level a box lies depend on weights and images, which are random here. Each
function runs as it is, for what it asks of the allocator; then its answer is written over.
"""
ANCHORS_OF_OBJECT, KEPT, SAMPLED = 16, 2000, 512


def boxes_of(name, batch, objects, torch):
    """Of 32 pixels. FCOS finds nine places around each centre; where the others lie does not matter."""
    corners = torch.tensor([[88.0 + 96 * (i % 7), 88.0 + 96 * (i // 7)] for i in range(objects)])
    return torch.cat([corners, corners + 32], 1).expand(batch, objects, 4).contiguous()


def hold(objects):
    import torch
    from torchvision.models.detection import _utils
    from torchvision.ops import boxes, poolers
    suppressed, too_small, levels = boxes.batched_nms, boxes.remove_small_boxes, poolers.LevelMapper.__call__

    def matches(kind):
        original = kind.__call__

        def call(self, quality):
            found = original(self, quality)
            count = SAMPLED // 4 if found.numel() <= KEPT + objects else objects * ANCHORS_OF_OBJECT
            found.fill_(-1)
            for i in range(objects): found[i * count // objects:(i + 1) * count // objects] = i
            return found

        return call

    _utils.SSDMatcher.__call__ = matches(_utils.SSDMatcher)  # before that of which it is made
    _utils.Matcher.__call__ = matches(_utils.Matcher)

    def kept(*arguments):
        suppressed(*arguments)
        return torch.arange(KEPT, device=arguments[0].device)

    def all_of(given, least):  # random weights move boxes to the border, where nothing is left of them
        too_small(given, least)
        return torch.arange(len(given), device=given.device)

    def on_levels(self, given):
        found = levels(self, given)
        for i in range(4): found[i * found.numel() // 4:(i + 1) * found.numel() // 4] = i
        return found

    boxes.batched_nms, boxes.remove_small_boxes = kept, all_of
    poolers.LevelMapper.__call__ = on_levels

class StructuredOutputsParams:
    def __init__(self, **keywords): self.__dict__.update(keywords)

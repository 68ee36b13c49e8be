"""The same graph as an MLServer runtime, in process and without its extras; started by `benchmarks/serving.py`."""

import numpy as np
import onnxruntime as ort
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class GateModel(MLModel):
    """Labels, scores and decisions of one tensor."""

    async def load(self) -> bool:
        extra = self.settings.parameters.extra
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = ort.InferenceSession(self.settings.parameters.uri, options, providers=["CPUExecutionProvider"])
        self._name = self._session.get_inputs()[0].name
        self._tau_id, self._tau_ood = extra["tau_id"], extra["tau_ood"]
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        x = NumpyCodec.decode_input(payload.inputs[0]).astype(np.float32, copy=False)
        label, s_id, s_ood, finite = self._session.run(["label", "s_id", "s_ood", "finite"], {self._name: x})
        accept = (s_id >= self._tau_id) & (s_ood >= self._tau_ood) & finite
        columns = {"label": label, "s_id": s_id, "s_ood": s_ood, "accept": accept.astype(np.uint8)}
        outputs = [NumpyCodec.encode_output(name, column) for name, column in columns.items()]
        return InferenceResponse(model_name=self.name, outputs=outputs)

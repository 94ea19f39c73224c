"""The messages of cost_graph.proto, which the protocol buffer compiler has written into cost_graph.binpb."""

from importlib.resources import files
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message_factory import GetMessages

_files = FileDescriptorSet.FromString(files(__package__).joinpath("cost_graph.binpb").read_bytes()).file
_classes: dict[str, Any] = GetMessages(_files)
CostGraphDef, RunMetadata = _classes["schedopt.CostGraphDef"], _classes["schedopt.RunMetadata"]
GraphDef = _classes["schedopt.GraphDef"]

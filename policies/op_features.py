NODE_FEATURES = 8
def op_features(graph, *, eigenvectors=20):
    import sys; sys.path.insert(0,'/tmp/me')
    from proto_feat import feats
    return feats(graph)

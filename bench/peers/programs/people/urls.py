"""The paths, without trailing slashes."""

from django.urls import include, path
from rest_framework.routers import SimpleRouter

from people import views

router = SimpleRouter(trailing_slash=False)
router.register("users", views.UserView)
router.register("groups", views.GroupView)
router.register("computers", views.ComputerView)

urlpatterns = [
    path("groups/<int:group_pk>/users", views.UserView.as_view({"get": "list"})),
    path("users/<int:pk>/relationships/<str:related_field>", views.UserRelationships.as_view()),
    path("", include(router.urls)),
]
